"""A step that asks a model about rows: first all that is missing is asked, then the output is written in one pass.

The rows are read twice. What was asked in the first pass stands in the journal, so that the output is the same whenever
the first pass was interrupted, and in the order of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .asking import Asker, Check, Endpoint, Request
from .journal import Answer, Journal
from .report import StepReport, outcomes
from .rows import Row, Selection, Source

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
        told: hears how many rows have an answer.

    Raises:
        ServiceStopped, DataError, ConfigError: see `Asker`, `Source`, `Journal`.
    """
    report = StepReport(step=step.name)
    with Journal(files.journal) as journal:
        if again and not dry_run:
            journal.forget_bad(step.name)
        if dry_run:
            missing = 0
            for _, request in _requests(step, source, selection, report):
                missing += journal.find(step.name, request.name(endpoint.model)) is None
            report.found["would ask"] = missing
            return report
        done = 0

        def one() -> None:
            nonlocal done
            done += 1
            told(done)

        asker = Asker(endpoint, journal, step=step.name, check=step.check, told=one)
        asker.ask(request for _, request in _requests(step, source, selection, StepReport(step=step.name)))
        report.account = asker.account
        with outcomes(files.output, report) as (write, write_failure):
            for row, request in _requests(step, source, selection, report):
                name = request.name(endpoint.model)
                answer = journal.find(step.name, name)
                if answer is not None and answer.good:
                    write(step.result(row, answer))
                    continue
                why = asker.unanswered.get(name, "not answered") if answer is None else answer.why_not or "malformed"
                write_failure(why, {"answer": None if answer is None else answer.text, "row": row})
    return report


def _requests(step: Step, source: Source, selection: Selection, report: StepReport) -> Iterator[tuple[Row, Request]]:
    for _, row in selection.of(source.rows()):
        report.rows_in += 1
        question = step.question(row)
        if isinstance(question, str):
            report.dropped[question] += 1
        else:
            yield row, question
