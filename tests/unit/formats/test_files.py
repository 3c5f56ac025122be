"""The files of tasks/problems/formats as files: each stands alone, and what several have is the same text."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tasks.problems.formats import fp8, mxfp4, nvfp4, scales128x4
from tests.support.waiting import PATIENCE_S

FOLDER = Path(nvfp4.__file__).parent
FILES = sorted(path for path in FOLDER.glob("*.py") if path.name != "__init__.py")


def test_what_several_files_have_is_the_same_text() -> None:
    """A name at the top of two files is the same definition, to the letter, but for what each file is there for."""
    texts: dict[str, dict[str, str]] = defaultdict(dict)
    for path in FILES:
        source = path.read_text()
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names = [node.name]
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            else:
                continue
            for name in names:
                texts[name][path.name] = ast.get_source_segment(source, node) or ""
    shared = {name: found for name, found in texts.items() if len(found) > 1}
    assert {"encode_e2m1", "to_float32", "shared_scales", "ScaleRule", "_blocks", "_E2M1_VALUES"} <= set(shared)
    different = {name for name, found in shared.items() if len(set(found.values())) > 1}
    assert different == {"BLOCK", "quantize", "dequantize"}


def test_each_file_stands_alone(tmp_path: Path) -> None:
    """Copied to where none of the repository is, it imports; and nothing but torch and the standard library."""
    allowed = {"__future__", "dataclasses", "enum", "functools", "math", "torch"}
    for path in FILES:
        (tmp_path / path.name).write_text(path.read_text())
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert {alias.name for alias in node.names} <= allowed
            if isinstance(node, ast.ImportFrom):
                assert node.module in allowed
    program = f"import sys; sys.path.insert(0, '.'); import {', '.join(path.stem for path in FILES)}"
    subprocess.run([sys.executable, "-I", "-c", program], cwd=tmp_path, check=True, timeout=PATIENCE_S)


@pytest.mark.parametrize(
    "work",
    [
        lambda values: nvfp4.dequantize(*nvfp4.quantize(values)),
        lambda values: nvfp4.dequantize(*nvfp4.quantize_two_level(values)),
        lambda values: nvfp4.decode_e2m1(nvfp4.unpack_e2m1(nvfp4.quantize(values)[0])),
        lambda values: mxfp4.dequantize(*mxfp4.quantize(values, mxfp4.ScaleRule.AMD)),
        lambda values: mxfp4.decode_e8m0(mxfp4.encode_e8m0(values, round_up=True)),
        lambda values: fp8.decode(fp8.encode(values, torch.float8_e5m2, saturate=False), torch.float8_e5m2),
        lambda values: fp8.dequantize_tiles(*fp8.quantize_tiles(values, torch.float8_e4m3fnuz), torch.float8_e4m3fnuz),
        lambda values: fp8.dequantize_mx(*fp8.quantize_mx(values, torch.float8_e4m3fn), torch.float8_e4m3fn),
        lambda values: scales128x4.unswizzle(scales128x4.swizzle(values.to(torch.float8_e4m3fn)), rows=64, blocks=128),
    ],
)
def test_work_stays_on_its_device(work: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """No step meets a tensor of another device, or asks one for its contents: the device without memory has none."""
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        result = work(torch.empty(64, 128, dtype=dtype, device="meta"))
        assert (result.device.type, result.shape) == ("meta", (64, 128))
