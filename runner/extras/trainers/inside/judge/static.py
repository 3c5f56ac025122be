"""What a candidate's text shows: flags for people, for statistics, and for requests that demand a kernel of its own.

Comments and docstrings show nothing: a candidate is neither praised nor blamed for what they mention. All in time that
grows with the text: an indent that could cross lines would take its square.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

#: A comment or a string; one that does not end goes to the end of its line, or of the text.
_QUOTED: Final = re.compile(
    r"""(?s)#[^\n]*|(?:\b[bfruBFRU]{1,2})?(?:"{3}(?:[^"\\]|\\.?|"(?!""))*(?:"{3})?|'{3}(?:[^'\\]|\\.?|'(?!''))*(?:'{3})?"""
    r"""|"(?:[^"\\\n]|\\.?)*"?|'(?:[^'\\\n]|\\.?)*'?)"""
)
#: Flag -> what is looked for in the code without its strings.
_FLAGS: Final = {
    "try_except": r"^[^\S\n]*except\b",
    "stream": r"cuda\.(Stream|stream)\b",
    "thread": r"\b(threading|concurrent\.futures|multiprocessing)\b",
    "data_pointer": r"\.data_ptr\(\)|\._version\b|\bid\(",
    "looks_at_frames": r"\bsys\._getframe\b|\binspect\.(stack|currentframe)|\bgc\.(get_objects|get_referrers)",
    "clock": r"\bperf_counter|\belapsed_time\b|\bcuda\.Event\b|\btime\.time\b",
    "seed": r"\bmanual_seed\b|\brandom\.seed\b",
    "tf32": r"allow_tf32|set_float32_matmul_precision",
    "patches_torch": r"^[^\S\n]*(torch|F)\.[\w.]+\s*=(?!=)|\bsetattr\(\s*torch",
    "evaluates_text": r"\b(exec|eval)\(|\bb64decode\b",
    "torch_compile": r"\btorch\.compile\b",
    "cuda_graph": r"\bCUDAGraph\b|\bmake_graphed_callables\b",
    "custom:cuda": (
        r"\bload_inline\(|\bcpp_extension\b|compile_kernel\(|\bRaw(Kernel|Module)\(|\b(Elementwise|Reduction)Kernel\("
    ),
}
#: The same, strings included: names of types, and what compilers get.
_QUOTED_FLAGS: Final = {
    "half": r"\.half\(\)|\bfloat16\b|\bbfloat16\b|\bautocast\b",
    "custom:cuda": r"__global__",
}
#: Flag -> what is imported for it.
_IMPORTS: Final = {
    "custom:cute": "cutlass",
    "custom:cutile": r"cuda(\.|\s+import\s+)tile",
    "custom:helion": "helion",
    "custom:numba": "numba",
    "custom:tilelang": "tilelang",
    "custom:warp": "warp",
}
#: What makes a function a kernel of Triton or Gluon, under whatever name they are imported.
_JIT: Final = r"(?<![\w.])(?!torch\b)(?:\w+\.)*jit(?![\w.])"
_FUNCTIONAL: Final = r"\btorch\.nn(?:\.|\s+import\s+)functional(?:\s+as\s+(\w+))?"


def flags_of(text: str) -> list[str]:
    """The flags of a text, sorted; `custom:NAME` for each kind of custom kernel, `no_custom_kernel` for none."""
    pieces = list(_pieces(text))
    code = "".join('""' if quoted else piece for piece, quoted in pieces)
    imports = "\n".join(line for line in code.split("\n") if re.search(r"\bimport\b", line))
    flags = set(_shown(_FLAGS, code))
    flags |= set(_shown(_QUOTED_FLAGS, "".join(piece for piece, _ in pieces)))
    flags |= {flag for flag, module in _IMPORTS.items() if re.search(rf"(?<![\w.]){module}\b", imports)}
    if re.search(r"(?<![\w.])triton\b", imports) and re.search(_JIT, code):
        flags.add("custom:triton")
    if _calls_functional(code, imports):
        flags.add("torch_functional")
    if not any(flag.startswith("custom:") for flag in flags):
        flags.add("no_custom_kernel")
    return sorted(flags)


def _shown(patterns: dict[str, str], text: str) -> Iterator[str]:
    return (flag for flag, pattern in patterns.items() if re.search(pattern, text, re.MULTILINE))


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """The text without comments and docstrings, in pieces; True: a string."""
    end, last = 0, ":"
    for quoted in _QUOTED.finditer(text):
        code = text[end : quoted.start()]
        yield code, False
        end, last = quoted.end(), code.rstrip(" \t\r\f\n")[-1:] or last
        if not quoted[0].startswith("#"):
            # A docstring begins the file, or the line after one that opens a block.
            yield "" if last == ":" and not code.rstrip(" \t").endswith(":") else quoted[0], True
            last = '"'
    yield text[end:], False


def _calls_functional(code: str, imports: str) -> bool:
    """Whether functions of torch.nn.functional are called, under whatever name it is imported."""
    if re.search(r"\bfrom\s+torch\.nn\.functional\s+import\b", imports):
        return True
    names = {"F", *(name or "functional" for name in re.findall(_FUNCTIONAL, imports))}
    called = re.finditer(r"(?<!\w)(\w+)\.[a-z]\w*\(", code)
    return "nn.functional." in code or any(call[1] in names for call in called)
