"""The data-set card: what its header and its text say of an export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from runner.extras.data import card

FILES = {
    "flat": "autumn_submissions.parquet",
    "submissions": "submissions.parquet",
    "runs": "runs.parquet",
    "code": "code/part-00000.parquet",
    "leaderboards": "leaderboards.parquet",
    "receipts": "receipts.parquet",
    "finals": "finals.parquet",
}


def rendered(rows: Mapping[str, int], **manifest: Any) -> str:  # noqa: ANN401 any key of a manifest
    """The card of an export; `rows`: how many each file has."""
    told = {"flat": FILES["flat"], "boards": [], "identity": "name", "licence": "mit"}
    return card.render({**told, "content_sha256": "ab12", **manifest}, rows)


@pytest.mark.parametrize(
    ("licence", "said"),
    [
        ("cc-by-4.0", {"license": "cc-by-4.0"}),
        ("researcher-reciprocity-1.0", {"license": "other", "license_name": "researcher-reciprocity-1.0"}),
        ('My "own" licence', {"license": "other", "license_name": 'My "own" licence'}),
        (None, {"license": "other"}),
    ],
)
def test_the_header_has_a_licence_that_a_hub_takes(licence: str | None, said: dict[str, str]) -> None:
    """Of its own list, or `other` and the name."""
    rows = {path: 0 for name, path in FILES.items() if name not in ("code", "receipts")}
    assert yaml.safe_load(rendered(rows, licence=licence).split("---\n")[1]) == said


@pytest.mark.parametrize(
    "lacks", [(), *((name,) for name in FILES), ("flat", "submissions", "runs", "code"), tuple(FILES)]
)
def test_a_configuration_has_rows(lacks: tuple[str, ...]) -> None:
    """Readers refuse one without: a leaderboard without submissions, submissions that never ran, no signed job."""
    rows = {path: 0 if name in lacks else 3 for name, path in FILES.items()}
    configs = yaml.safe_load(rendered(rows, keys=[]).split("---\n")[1]).get("configs", [])
    assert [each["config_name"] for each in configs] == [name for name in FILES if name not in lacks]
    assert [each["config_name"] for each in configs if each.get("default")] == ["flat"] * ("flat" not in lacks)
