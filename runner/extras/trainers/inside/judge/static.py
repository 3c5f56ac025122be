"""What a candidate's text shows: flags for people and for statistics, never a verdict."""

from __future__ import annotations

import re

#: Flag -> what is looked for, in time that grows with the text: an indent that could cross lines would take its square.
_FLAGS = {
    "try_except": r"^[^\S\n]*except\b",
    "stream": r"cuda\.(Stream|stream)\b",
    "thread": r"\b(threading|concurrent\.futures|multiprocessing)\b",
    "data_pointer": r"\.data_ptr\(\)|\._version\b|\bid\(",
    "looks_at_frames": r"\bsys\._getframe\b|\binspect\.(stack|currentframe)|\bgc\.(get_objects|get_referrers)",
    "clock": r"\bperf_counter|\belapsed_time\b|\bcuda\.Event\b|\btime\.time\b",
    "seed": r"\bmanual_seed\b|\brandom\.seed\b",
    "half": r"\.half\(\)|\bfloat16\b|\bbfloat16\b|\bautocast\b",
    "tf32": r"allow_tf32|set_float32_matmul_precision",
    "patches_torch": r"^[^\S\n]*(torch|F)\.[\w.]+\s*=(?!=)|\bsetattr\(\s*torch",
    "evaluates_text": r"\b(exec|eval)\(|\bb64decode\b",
    "torch_functional": r"\bF\.[a-z]\w*\(|\bnn\.functional\.\w+\(",
    "torch_compile": r"\btorch\.compile\b",
    "cuda_graph": r"\bCUDAGraph\b|\bmake_graphed_callables\b",
}
_CUSTOM = {
    "triton": r"@triton\.jit\b|\btriton\.jit\(",
    "cuda": r"\bload_inline\(|\bcpp_extension\b|\bcupy\.RawKernel\b|\bcompile_kernel\b|__global__",
    "cute": r"\bcutlass\b|\bcute\.kernel\b",
    "tilelang": r"\btilelang\b",
    "numba": r"\bnumba\b",
}


def flags_of(code: str) -> list[str]:
    """The flags of a text, sorted; `custom:NAME` for each kind of custom kernel, `no_custom_kernel` for none."""
    flags = [name for name, pattern in _FLAGS.items() if re.search(pattern, code, re.MULTILINE)]
    custom = [f"custom:{name}" for name, pattern in _CUSTOM.items() if re.search(pattern, code)]
    return sorted([*flags, *(custom or ["no_custom_kernel"])])
