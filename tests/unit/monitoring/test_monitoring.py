"""The list of metrics, the dashboard and the alert rules against what `/metrics` really has."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client.core import Metric

from runner.base import metrics
from tests.unit.monitoring.families import SUFFIXES, families, labels

DOCS: Final = Path(__file__).resolve().parents[3] / "docs"
#: Of the scraper, and of the Prometheus library's own.
FOREIGN: Final = {"up": {"job", "instance"}, "process_resident_memory_bytes": {"job", "instance"}}


@pytest.fixture(scope="module")
def by_name() -> Mapping[str, Metric]:
    """Families by name."""
    by_name = families()
    assert len(by_name) > 25
    return by_name


def alerts() -> Sequence[Mapping[str, Any]]:
    """The rules of the file."""
    (group,) = yaml.safe_load((DOCS / "monitoring" / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return [dict(rule) for rule in group["rules"]]


def panels() -> Sequence[Mapping[str, Any]]:
    """The panels of the dashboard that ask something."""
    dashboard = json.loads((DOCS / "monitoring" / "dashboard.json").read_text(encoding="utf-8"))
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    """Every query of both."""
    queries = [str(rule["expr"]) for rule in alerts()]
    queries += [target["expr"] for panel in panels() for target in panel["targets"]]
    return queries


#: Words of PromQL that stand where a name could.
WORDS: Final = frozenset(
    {"sum", "max", "min", "count", "avg", "absent", "rate", "increase", "histogram_quantile"}
    | {"by", "on", "unless", "and", "or", "without", "ignoring"}
)


@pytest.mark.parametrize("expression", expressions())
def test_every_query_asks_for_what_is_there(expression: str, by_name: Mapping[str, Metric]) -> None:
    """Every name is a metric of ours (or the scraper's), every label one that it has; parentheses match."""
    offered = {
        family.name + suffix: {*labels(family), "instance", "job", *(["le"] if suffix == "_bucket" else [])}
        for family in by_name.values()
        for suffix in SUFFIXES[family.type]
    } | {name: set(found) for name, found in FOREIGN.items()}
    bare = re.sub(r'"[^"]*"', '""', expression)
    for opening, closing in ("()", "{}", "[]"):
        assert bare.count(opening) == bare.count(closing)
    grouped = {word for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", bare) for word in re.findall(r"\w+", group)}
    selectors = re.findall(r"([a-z_]\w*)\{([^}]*)\}", bare)
    names = set(re.findall(r"[a-z_]\w*", re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare))) - WORDS - grouped
    assert names, expression
    assert names <= set(offered)
    for name, matchers in selectors:
        assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= offered[name]
    assert grouped <= set().union(*(offered[name] for name in names))


def test_labels_that_have_a_few_values_are_asked_for_those(by_name: Mapping[str, Metric]) -> None:
    """A reason, condition, state, source or cause that no daemon ever says would be an alert that never comes."""
    metrics.expect(["CPU"], [])
    values: dict[str, set[str]] = {}
    for family in (*by_name.values(), *metrics.REGISTRY.collect()):
        for sample in family.samples:
            for label, value in sample.labels.items():
                values.setdefault(label, set()).add(value)
    asked = 0
    for expression in expressions():
        for label, operator, value in re.findall(r'(\w+)\s*(=~|!=|!~|=)\s*"([^"]*)"', expression):
            if label in ("reason", "condition", "state", "source", "cause", "outcome"):
                asked += 1
                assert set(value.split("|")) <= values[label], f"{label}{operator}{value} in {expression}"
    assert asked > 5


def test_the_dashboard_can_be_imported() -> None:
    """Each panel has a number, a place of its own and a data source that the reader chooses."""
    dashboard = json.loads((DOCS / "monitoring" / "dashboard.json").read_text(encoding="utf-8"))
    assert {variable["name"] for variable in dashboard["templating"]["list"]} == {"datasource", "host"}
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(numbers)) == len(numbers)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24


#: What a metric's name ends in -> the unit of its panel; others are numbers.
UNITS: Final = {"_seconds": "s", "_bytes": "bytes", "_celsius": "celsius", "_watts": "watt"}


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_a_panel_has_the_units_of_what_it_shows(panel: Mapping[str, Any]) -> None:
    """A count of builds is no time."""
    config = panel["fieldConfig"]
    for target in panel["targets"]:
        unit = config["defaults"]["unit"]
        for override in config.get("overrides", ()):
            if re.fullmatch(override["matcher"]["options"], target["legendFormat"]):
                (unit,) = (each["value"] for each in override["properties"])
        assert unit == next((UNITS[end] for end in UNITS if end in target["expr"]), "short"), target["expr"]


def test_every_alert_is_complete_and_every_metric_in_one_or_on_the_dashboard(by_name: Mapping[str, Metric]) -> None:
    """A name of its own, a severity that can be routed by, a summary, and a description that says what to do."""
    rules = alerts()
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert rule["annotations"]["summary"]
        assert len(rule["annotations"]["description"].split()) >= 15
        assert re.fullmatch(r"\d+[mh]", rule.get("for", "1m"))
    everything = " ".join(expressions())
    assert [name for name in by_name if not re.search(rf"\b{name}(_\w+)?\b", everything)] == []
