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
from runner.extras.jsonl import Row, numbered

from .report import StepReport
from .rows import facts_of, keep_facts, number_of, replaced, text_of

INPUT: Final = "outputs/filtered_dataset.jsonl"
OUTPUT: Final = "outputs/filtered_dataset-filtered.jsonl"
#: Names that the report lists.
_LISTED: Final = 20


class _Best:
    """The best row of each module so far: its reward, its number, and where it begins in the file."""

    def __init__(self, source: Path, *, by_code: bool) -> None:
        self._source = source
        self._by_code = by_code
        self.best: dict[str, tuple[float, int, int]] = {}
        #: Hashes of the codes of each name.
        self.codes: dict[str, set[str]] = defaultdict(set)

    def add(self, row: Row, number: int, start: int) -> bool:
        """Compare a row with the best of its module; False: it has no reward.

        Raises:
            DataError: it names no module.
        """
        name, code = text_of(row, "module_name"), text_of(row, "python_code")
        key = name
        if self._by_code:
            key = None if code is None else normalised(code)
        if key is None:
            column = "python_code" if self._by_code else "module_name"
            raise DataError(f"{self._source}, line {number}: neither the row nor its info has {column}")
        reward = number_of(row, "reward")
        if reward is None:
            return False
        if name is not None and code is not None:
            self.codes[name].add(normalised(code))
        if key not in self.best or reward > self.best[key][0]:
            self.best[key] = (reward, number, start)
        return True


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
    best = _Best(source, by_code=by_code)
    for number, start, row in islice(numbered(source), limit):
        report.rows_in += 1
        if not best.add(row, number, start):
            report.dropped["the reward is missing or not finite"] += 1
    chosen = sorted(best.best.values(), key=lambda row: (-row[0], row[1]))
    report.rows_out = len(chosen)
    worse = report.rows_in - report.rows_out - report.dropped.total()
    if worse:
        report.dropped["another row of the module is better"] = worse
    several = sorted(name for name, codes in best.codes.items() if len(codes) > 1)
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
    except (SyntaxError, ValueError, RecursionError):
        code = code.strip()
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
