"""Step 3: of all rows of a module, keep the one with the highest reward."""

from __future__ import annotations

import ast
import hashlib
from collections import defaultdict
from itertools import islice
from pathlib import Path
from typing import Final

from runner.base.errors import DataError
from runner.base.marks import ENCODING
from runner.extras.jsonl import numbered

from .report import StepReport
from .rows import facts_of, keep_facts, number_of, replaced, text_of

INPUT: Final = "outputs/filtered_dataset.jsonl"
OUTPUT: Final = "outputs/filtered_dataset-filtered.jsonl"
#: Names that the report lists.
_LISTED: Final = 20


def run(
    source: Path, output: Path, *, by_code: bool = False, limit: int | None = None, dry_run: bool = False
) -> StepReport:
    """Write the best row of each module, by falling reward; of equal rewards the first row wins.

    Both files are JSONL. The source is read twice; only names and rewards are kept. `by_code`: a module is its
    normalised code, not its name.

    Raises:
        DataError: the file cannot be read, or a row names no module.
    """
    report = StepReport(step="best")
    #: Module -> its best row: reward, number, and where it begins in the file.
    best: dict[str, tuple[float, int, int]] = {}
    #: Name -> hashes of its codes.
    codes: dict[str, set[str]] = defaultdict(set)
    for number, start, row in islice(numbered(source), limit):
        report.rows_in += 1
        name, code = text_of(row, "module_name"), text_of(row, "python_code")
        code_hash = None if code is None else normalised(code)
        module = code_hash if by_code else name
        if module is None:
            column = "python_code" if by_code else "module_name"
            raise DataError(f"{source}, line {number}: neither the row nor its info has {column}")
        reward = number_of(row, "reward")
        if reward is None:
            report.dropped["the reward is missing or not finite"] += 1
            continue
        if name is not None and code_hash is not None:
            codes[name].add(code_hash)
        if module not in best or reward > best[module][0]:
            best[module] = (reward, number, start)
    chosen = sorted(best.values(), key=lambda row: (-row[0], row[1]))
    report.rows_out = len(chosen)
    worse = report.rows_in - report.rows_out - report.dropped.total()
    if worse:
        report.dropped["another row of the module is better"] = worse
    several = sorted(name for name, own in codes.items() if len(own) > 1)
    if several and not by_code:
        report.facts["names with several codes"] = len(several)
        report.facts["for example"] = ", ".join(several[:_LISTED])
    if dry_run:
        return report
    with source.open("rb") as lines, replaced(output) as file:
        for _, _, start in chosen:
            lines.seek(start)
            file.write(lines.readline().decode(ENCODING).rstrip("\n") + "\n")
    keep_facts(output, {"source": str(source), **facts_of(source)})
    report.files = [str(output)]
    return report


def normalised(code: str) -> str:
    """A hash of code that comments, blank lines and layout do not change; of the text where it is no Python."""
    try:
        code = ast.unparse(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        code = code.strip()
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
