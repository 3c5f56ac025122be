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

from runner.extras.jsonl import Row

from .asking import Asker, Check, Endpoint, Request
from .journal import Answer, Journal
from .report import StepReport, outcomes
from .rows import Source

#: Told how many rows are done.
Progress = Callable[[int], None]


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


def run(
    step: Step,
    source: Source,
    *,
    endpoint: Endpoint,
    output: Path,
    dry_run: bool = False,
    again: bool = False,
    progress: Progress = lambda _: None,
) -> StepReport:
    """Run a step on rows, which are read twice. Its journal is `journal.sqlite` beside the output, a JSONL file.

    `dry_run`: only count what would be asked. `again`: ask again for rows whose answers could not be used.
    `progress` gets how many rows are answered or left out.
    """
    report = StepReport(step=step.name)
    file = output.with_name("journal.sqlite")
    with Journal(file, in_memory=dry_run and not file.exists()) as journal:
        if dry_run:
            report.facts["would ask"] = sum(
                journal.find(step.name, request.name(endpoint.model)) is None
                for _, request in _requests(step, source, report)
            )
            return report
        if again:
            journal.forget_bad(step.name)
        read = StepReport(step=step.name)
        requests = (request for _, request in _requests(step, source, read))
        done = count(1)
        asker = Asker(endpoint, journal, step=step.name, check=step.check, progress=lambda: progress(next(done)))
        asker.ask(requests)
        report.account = asker.account
        facts = {**source.facts, **step.facts, f"model of {step.name}": endpoint.model}
        with outcomes(output, report, facts) as (write, write_failure):
            for row, request in _requests(step, source, report):
                name = request.name(endpoint.model)
                answer = journal.find(step.name, name)
                if answer is not None and answer.good:
                    write(step.result(row, answer))
                    continue
                why = asker.unanswered.get(name, "not answered") if answer is None else answer.why_not or "malformed"
                write_failure(why, {"answer": None if answer is None else answer.text, "row": row})
    return report


def _requests(step: Step, source: Source, report: StepReport) -> Iterator[tuple[Row, Request]]:
    """Each row with its request; what is left out is in the report."""
    for row in source.rows():
        report.rows_in += 1
        question = step.question(row)
        if isinstance(question, str):
            report.dropped[question] += 1
        else:
            yield row, question
