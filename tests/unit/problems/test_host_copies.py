"""Templates and sample solutions copy no Python numbers to a device while they are timed: that waits for the device.

A kernel that waits for the host is not bounded by the judge's own work on the device (docs/harness.md).
"""

from __future__ import annotations

import ast
from pathlib import Path

TASKS = Path(__file__).resolve().parents[3] / "tasks" / "problems"
FILES = sorted([*TASKS.glob("*/templates/*.py"), *TASKS.glob("*/solutions/correct/*.py")])
#: Functions of torch that copy from Python objects.
COPIES = {"tensor", "as_tensor", "asarray"}


def waits(code: str) -> list[int]:
    """Lines where each call of a kernel copies numbers to a device, from memory that is not pinned."""
    found: list[int] = []

    def visit(node: ast.AST, *, timed: bool) -> None:
        if isinstance(node, ast.FunctionDef):
            names = {ast.unparse(each) for each in node.decorator_list}
            timed = not names & {"functools.cache", "functools.lru_cache", "cache"}
        if timed and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in COPIES:
            keywords = {each.arg for each in node.keywords}
            if ast.unparse(node.func.value) == "torch" and "device" in keywords and "pin_memory" not in keywords:
                found.append(node.lineno)
        for child in ast.iter_child_nodes(node):
            visit(child, timed=timed)

    visit(ast.parse(code), timed=False)
    return found


def test_tables_are_made_once() -> None:
    """At import, or by a function that keeps its result."""
    found = {path: waits(path.read_text(encoding="utf-8")) for path in FILES}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_a_copy_in_each_call_is_found() -> None:
    """And one at import, or from pinned memory, is not."""
    once = "import functools, torch\nA = torch.tensor([1], device='cuda')\n@functools.cache\ndef table(d):\n"
    assert waits(once + "    return torch.tensor([1], device=d)\n") == []
    assert waits("def custom_kernel(data):\n    return torch.tensor([1], pin_memory=True).to('cuda')\n") == []
    assert waits("def custom_kernel(data):\n    return torch.tensor([1], device='cuda')\n") == [2]
