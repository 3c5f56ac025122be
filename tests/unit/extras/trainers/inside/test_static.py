"""Flags of a candidate's text."""

from __future__ import annotations

import pytest

from runner.extras.trainers.inside.judge.group import MAX_TEXT_BYTES
from runner.extras.trainers.inside.judge.static import flags_of


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        ("    except RuntimeError:", "try_except"),
        ("s = torch.cuda.Stream()", "stream"),
        ("import threading", "thread"),
        ("k = x.data_ptr()", "data_pointer"),
        ("f = sys._getframe()", "looks_at_frames"),
        ("t = time.perf_counter()", "clock"),
        ("torch.manual_seed(42)", "seed"),
        ("y = x.half()", "half"),
        ("y = F.relu(x)", "torch_functional"),
        ("y = torch.nn.functional.gelu(x)", "torch_functional"),
        ("torch.backends.cuda.matmul.allow_tf32 = True", "tf32"),
        ("torch.relu = f", "patches_torch"),
        ("exec(text)", "evaluates_text"),
        ("@triton.jit\ndef kernel(): pass", "custom:triton"),
        ("m = load_inline(name='x')", "custom:cuda"),
        ("y = torch.relu(x)", "no_custom_kernel"),
    ],
)
def test_what_a_text_shows(line: str, flag: str) -> None:
    """Each finding has a name; a plain text has none."""
    assert flag in flags_of(f"import torch\n{line}\n")
    assert flags_of("import torch.nn.functional as F\nx = DEF.relu\n") == ["no_custom_kernel"]
    assert flags_of("import torch\nif torch.ones(1) == 1:\n    pass\n") == ["no_custom_kernel"]


@pytest.mark.parametrize(
    "unit", ["\n", " ", "\t\n", "\r\n", "torch.", "torch.a \n", "F.", "F.x=\n", "except", "cuda.", "sys.", "eval"]
)
def test_a_text_of_any_shape_is_read_in_one_pass(unit: str) -> None:
    """The judge reads it before any limit. Hours for lines without end, if the work grew with their square."""
    flags_of((unit * MAX_TEXT_BYTES)[: MAX_TEXT_BYTES // 8])
