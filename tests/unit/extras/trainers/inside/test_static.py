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
        ("torch.backends.cuda.matmul.allow_tf32 = True", "tf32"),
        ("torch.relu = f", "patches_torch"),
        ("exec(text)", "evaluates_text"),
        ("y = torch.relu(x)", "no_custom_kernel"),
    ],
)
def test_what_a_text_shows(line: str, flag: str) -> None:
    """Each finding has a name; a plain text has none."""
    assert flag in flags_of(f"import torch\n{line}\n")
    assert flags_of("import torch.nn.functional as F\nx = DEF.relu\n") == ["no_custom_kernel"]
    assert flags_of("import torch\nif torch.ones(1) == 1:\n    pass\n") == ["no_custom_kernel"]


#: By kind of kernel: texts that have one, with the names under which people import what they need.
KERNELS = {
    "triton": (
        "import triton\n@triton.jit\ndef k(): pass",
        "import triton as tr\n@tr.jit  # no autotune\ndef k(): pass",
        "from triton import jit\n@jit\ndef k(): pass",
        "try:\n    import triton\nexcept ImportError:\n    triton = None\nk = triton.jit(f)",
        "from triton.experimental import gluon\n@gluon.jit\ndef k(): pass",
    ),
    "cuda": (
        "m = cpp.load_inline(name='x')",
        "import cupy as cp\nk = cp.RawKernel(text, 'k')",
        "import cupy as cp\nk = cp.ElementwiseKernel('T x', 'T y', 'y = x', 'k')",
        "k = torch.cuda._compile_kernel(text, 'k')",
        'TEXT = r"""\n// c\nextern "C" __global__ void k() {}\n"""',
        "TEXT = {'k': '__global__ void k() {}'}",
    ),
    "cute": ("import cutlass.cute as cute",),
    "cutile": ("import cuda.tile as ct", "from cuda import tile as ct"),
    "helion": ("import helion", "import torch, helion", "from helion import kernel"),
    "numba": ("from numba import cuda",),
    "tilelang": ("import tilelang.language as T",),
    "warp": ("import warp as wp",),
}
#: How a text mentions what it does not do.
MENTIONS = {
    "in a comment": "# {}",
    "after code": "x = 1  # {}",
    "in the file's docstring": '"""{}"""',
    "in a function's docstring": "def f():\n    r'''Does.\n\n    {}\n    '''",
    "in a class's docstring": 'class A(B):  # c\n\n    "{}"',
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in KERNELS.items() for text in texts])
def test_a_kernel_is_seen_under_every_name(kind: str, text: str) -> None:
    """Whatever people call what they import."""
    assert [flag for flag in flags_of(text) if "custom" in flag] == [f"custom:{kind}"]


@pytest.mark.parametrize("mention", MENTIONS.values(), ids=MENTIONS)
def test_comments_and_docstrings_show_nothing(mention: str) -> None:
    """They make no library call a kernel, and no kernel a library call."""
    for line in ("@triton.jit", "import numba", "load_inline(", "__global__", "F.relu(x)", "x.half()", "time.time()"):
        text = mention.format(line)
        assert flags_of(f"{text}\n    x = 1\nimport triton\n") == ["no_custom_kernel"], text


@pytest.mark.parametrize(
    "text",
    [
        "y = F.relu(x)",
        "y = torch.nn.functional.gelu(x)",
        "import torch.nn.functional as F\ny = F.relu(x)",
        "import torch.nn.functional as func\ny = func.relu(x)",
        "from torch.nn import functional\ny = functional.relu(x)",
        "from torch.nn import functional as N\ny = N.relu(x)",
        "from torch.nn.functional import relu\ny = relu(x)",
        "from torch import nn\ny = nn.functional.relu(x)",
    ],
)
def test_functional_is_seen_under_every_name(text: str) -> None:
    """Some rewards give nothing for it."""
    assert "torch_functional" in flags_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "import triton",
        "import triton\n@torch.jit.script\ndef f(): pass",
        "from torch._inductor.runtime import triton_helpers\n@jit\ndef f(): pass",
        "x = '@triton.jit'",
        "import torch.nn.functional as F\nx = 1",
        "y = torch.autograd.functional.jvp(f, x)",
    ],
)
def test_what_is_no_kernel_and_no_call(text: str) -> None:
    """An import alone, torch's own compiler, a string, functions of the same name elsewhere."""
    assert flags_of(text) == ["no_custom_kernel"]


@pytest.mark.parametrize(
    "unit",
    [
        "\\",
        "'",
        '"',
        '"""',
        "#",
        "'a'",
        "jit.",
        "@jit",
        "import triton\n",
        "import torch.nn.functional as f;",
        "from torch.nn import functional ",
        "\n",
        " ",
        "\t\n",
        "\r\n",
        "torch.",
        "torch.a \n",
        "F.",
        "F.x=\n",
        "except",
        "cuda.",
        "sys.",
        "eval",
    ],
)
def test_a_text_of_any_shape_is_read_in_one_pass(unit: str) -> None:
    """The judge reads it before any limit. Hours for lines without end, if the work grew with their square."""
    flags_of((unit * MAX_TEXT_BYTES)[: MAX_TEXT_BYTES // 8])
