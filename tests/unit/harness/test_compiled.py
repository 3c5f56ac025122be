"""Compiled submissions: how inputs are laid out for a C function, and what becomes of what that says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from tasks.harness.worker.compiled import CompileFailed, KernelFailed, compile_sources, flatten, load_library

INCLUDE = Path(__file__).parents[3] / "tasks" / "harness" / "include"
#: Writes what it sees of its inputs into the last one, or complains.
SHOWS = """
#include "kernel_runner.h"
#include <stddef.h>

const char *custom_kernel(const kr_value *values, int32_t count) {
    double *out = (double *)values[count - 1].tensor.data;
    if (values[0].kind != KR_TENSOR) return "no tensor";
    const kr_tensor *tensor = &values[0].tensor;
    out[0] = count;
    out[1] = tensor->dimensions;
    out[2] = tensor->shape[1];
    out[3] = tensor->strides[0];
    out[4] = tensor->dtype == KR_INT32;
    out[5] = ((int32_t *)tensor->data)[tensor->strides[0]];
    out[6] = values[1].kind == KR_INTEGER ? (double)values[1].integer : -1;
    out[7] = values[2].kind == KR_REAL ? values[2].real : -1;
    out[8] = values[3].kind == KR_NOTHING;
    out[9] = tensor->item_bytes;
    return NULL;
}
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library made by the C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    (tmp_path / "shows.c").write_text(SHOWS)
    compile_sources([compiler, "-shared", "-fPIC", f"-I{INCLUDE}", "shows.c", "-o", "shows.so"], tmp_path)
    return tmp_path / "shows.so"


def test_a_function_finds_its_inputs_where_the_header_says(library: Path) -> None:
    """Kinds, shapes, strides, dtypes and contents of nested inputs; the last of them is what was returned."""
    tensor = torch.arange(12, dtype=torch.int32).view(3, 4)[:, :2]
    output = torch.zeros(10, dtype=torch.float64)
    returned = load_library(library)(flatten((tensor, [7, {"scale": 0.5}], None, output)))
    assert returned is output
    assert output.tolist() == [5, 2, 2, 4, 1, 4, 7, 0.5, 1, 4]


def test_what_a_function_refuses_or_cannot_take_is_an_error(library: Path) -> None:
    """What it returns in place of nothing is the submission's failure; text has no place in the layout."""
    with pytest.raises(KernelFailed, match="no tensor"):
        load_library(library)(flatten((3, torch.zeros(1))))
    with pytest.raises(TypeError, match="hold a str"):
        flatten(("text", torch.zeros(1)))


def test_what_does_not_compile_or_load_is_told(tmp_path: Path) -> None:
    """A file that is no library says so in a sentence; a compiler's first error is one, and all it said is kept."""
    (tmp_path / "none.so").write_text("no library")
    with pytest.raises(KernelFailed, match="no function custom_kernel"):
        load_library(tmp_path / "none.so")
    script = "echo 'a.cu(1): error: what is this' >&2; echo more >&2; exit 2"
    with pytest.raises(CompileFailed, match=r"sh failed: a\.cu\(1\): error: what is this") as caught:
        compile_sources(["sh", "-c", script], tmp_path)
    assert "more" in caught.value.output
