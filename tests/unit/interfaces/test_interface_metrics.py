"""Metrics: names, types and labels, and the words of labels that have a few."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from runner import metrics
from tests.unit.interfaces.fixtures import compare
from tests.unit.monitoring.families import families, labels, shown_name

#: Labels whose every word a daemon shows from its start.
COMPLETE = ("cause", "condition", "reason", "source", "state")


def line(family: Metric) -> str:
    """A family as a query needs it."""
    return f"{shown_name(family)} {family.type} {{{', '.join(described(family))}}}"


def described(family: Metric) -> Iterator[str]:
    """Its labels, some with their words."""
    for label in labels(family):
        words = sorted({sample.labels[label] for sample in family.samples if label in sample.labels})
        yield f"{label}={'|'.join(words)}" if label in COMPLETE else label


def test_metrics() -> None:
    """As a daemon with a slot of type CPU shows them."""
    metrics.expect(["CPU"], [])
    compare("metrics", map(line, families().values()))
