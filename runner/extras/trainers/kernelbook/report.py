"""What a step did with its rows: in, out, dropped and why, kept aside, and what the answers cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from runner.extras.jsonl import Row

from .rows import keep_facts, written


@dataclass(kw_only=True)
class Account:
    """What a step asked for in this run, and what its answers cost."""

    asked: int = 0
    from_journal: int = 0
    refused: int = 0
    retries: int = 0
    tokens_in: int = 0
    tokens_out: int = 0


@dataclass(kw_only=True)
class StepReport:
    """One step."""

    step: str
    rows_in: int = 0
    rows_out: int = 0
    #: Reason -> rows that the step leaves out on purpose.
    dropped: Counter[str] = field(default_factory=Counter)
    #: Reason -> rows that failed. They are in the side file.
    failed: Counter[str] = field(default_factory=Counter)
    account: Account | None = None
    #: What the step found out, as its own numbers.
    facts: dict[str, Any] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether no row failed."""
        return not self.failed

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "step": self.step,
            "complete": self.complete,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "dropped": dict(self.dropped),
            "failed": dict(self.failed),
            "account": None if self.account is None else asdict(self.account),
            "found": self.facts,
            "files": self.files,
        }

    def lines(self) -> list[str]:
        """For people."""
        lines = [f"{self.step}: {self.rows_in} rows in, {self.rows_out} out"]
        lines += [f"  left out: {count} ({reason})" for reason, count in sorted(self.dropped.items())]
        lines += [f"  failed: {count} ({reason})" for reason, count in sorted(self.failed.items())]
        if self.account is not None:
            account = self.account
            lines.append(
                f"  asked {account.asked}, from the journal {account.from_journal}, retries {account.retries}, "
                f"tokens {account.tokens_in} in and {account.tokens_out} out"
            )
        return lines + [f"  {name}: {value}" for name, value in self.facts.items() if not isinstance(value, Mapping)]


@contextmanager
def outcomes(
    output: Path, report: StepReport, facts: Mapping[str, Any]
) -> Iterator[tuple[Callable[[Row], None], Callable[[str, Mapping[str, Any]], None]]]:
    """Two writers: of rows, and, into a side file, of what failed and why. Both count in the report.

    Both files appear whole or not at all; the side file only if something failed. `facts` are kept beside them.

    Raises:
        DataError: the folder cannot be written.
    """
    failures = output.with_name(f"{output.stem}.failures.jsonl")
    with written(output) as write, written(failures, empty=False) as write_failure:

        def succeed(row: Row) -> None:
            write(row)
            report.rows_out += 1

        def fail(why: str, about: Mapping[str, Any]) -> None:
            write_failure({"why": why, **about})
            report.failed[why] += 1

        yield succeed, fail
    keep_facts(output, facts)
    report.files = [str(output), *([str(failures)] if report.failed else [])]
