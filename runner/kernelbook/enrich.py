"""A step that asks a model about rows: first all that is missing is asked, then the output is written in one pass.

The rows are read twice. What was asked in the first pass stands in the journal, so that the output is the same whenever
the first pass was interrupted, and in the order of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from runner.jsonl import Row

from .asking import Asker, Check, Endpoint, Request
from .journal import Answer, Journal
from .report import Account, StepReport, outcomes
from .rows import Selection, Source

#: Told how many rows are done.
Told = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Step:
    """What differs between steps."""

    name: str
    #: The question about a row, or the reason why the row is left out.
    question: Callable[[Row], Request | str]
    check: Check
    #: The output's row, from the input's and the answer.
    result: Callable[[Row, Answer], Row]
    #: What the output depends on beside rows and model, for the card of a data set.
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Files:
    """Where a step writes."""

    output: Path
    journal: Path


def run(
    step: Step,
    source: Source,
    *,
    selection: Selection,
    endpoint: Endpoint,
    files: Files,
    dry_run: bool = False,
    again: bool = False,
    ray: str | None = None,
    told: Told = lambda _: None,
) -> StepReport:
    """Run a step.

    Args:
        step: which one.
        source: its rows. They are read twice.
        selection: which of them.
        endpoint: whom to ask.
        files: where to write.
        dry_run: only count what would be asked.
        again: ask again for rows whose answers could not be used.
        ray: the address of a Ray cluster whose nodes ask; None: this process does.
        told: gets how many rows have an answer, or are left out.

    Raises:
        ServiceStopped, DataError, ConfigError: see `Asker`, `Source`, `Journal`, `spread.ask`.
    """
    work = _Work(step=step, source=source, selection=selection, endpoint=endpoint)
    report = StepReport(step=step.name)
    with Journal(files.journal, in_memory=dry_run and not files.journal.exists()) as journal:
        if dry_run:
            report.found["would ask"] = sum(
                journal.find(step.name, name) is None for _, _, name in work.requests(report)
            )
            return report
        if again:
            journal.forget_bad(step.name)
        if ray is None:
            report.account, unanswered = work.ask(journal, told)
        else:
            from .spread import ask

            read = StepReport(step=step.name)
            report.account, unanswered = ask(
                ray,
                (request for _, request, _ in work.requests(read)),
                endpoint,
                journal,
                step=step.name,
                check=step.check,
                told=lambda done: told(done + read.dropped.total()),
            )
        work.write(files.output, journal, unanswered, report)
    return report


@dataclass(frozen=True, kw_only=True)
class _Work:
    """A step, its rows, and whom to ask."""

    step: Step
    source: Source
    selection: Selection
    endpoint: Endpoint

    def requests(self, report: StepReport) -> Iterator[tuple[Row, Request, str]]:
        """Each row with its request and the request's name; what is left out is in the report."""
        for _, row in self.selection.of(self.source.rows()):
            report.rows_in += 1
            question = self.step.question(row)
            if isinstance(question, str):
                report.dropped[question] += 1
            else:
                yield row, question, question.name(self.endpoint.model)

    def ask(self, journal: Journal, told: Told) -> tuple[Account, Mapping[str, str]]:
        """Ask what is missing: the account, and why some requests got no answer, by their names."""
        done = count(1)
        asker = Asker(self.endpoint, journal, step=self.step.name, check=self.step.check, told=lambda: told(next(done)))
        asker.ask(request for _, request, _ in self.requests(StepReport(step=self.step.name)))
        return asker.account, asker.unanswered

    def write(self, output: Path, journal: Journal, unanswered: Mapping[str, str], report: StepReport) -> None:
        """Write the rows with their answers, in the order of the input."""
        counted: set[str] = set()
        account = report.account or Account()
        facts = {**self.source.facts, **self.step.facts, f"model of {self.step.name}": self.endpoint.model}
        with outcomes(output, report, facts) as (write, write_failure):
            for row, _, name in self.requests(report):
                answer = journal.find(self.step.name, name)
                if answer is not None and name not in counted:
                    counted.add(name)
                    account.all_tokens_in += answer.tokens_in
                    account.all_tokens_out += answer.tokens_out
                if answer is not None and answer.good:
                    write(self.step.result(row, answer))
                    continue
                why = unanswered.get(name, "not answered") if answer is None else answer.why_not or "malformed"
                write_failure(why, {"answer": None if answer is None else answer.text, "row": row})
