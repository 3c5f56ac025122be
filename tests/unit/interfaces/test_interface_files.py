"""The keys of the files that operators and task authors write, with types, bounds and defaults."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from runner import config
from runner.gpu_types import registry
from runner.task_format import model, schema
from tests.unit.interfaces import fixtures
from tests.unit.interfaces.fixtures import compare, schema_lines

#: Fixture -> the models of the file; each key begins with the prefix.
MODELS: dict[str, dict[str, type]] = {
    "config_toml": {"": config.Config, "slots[].": config.SlotConfig},
    "task_yml": {
        "": schema.TaskDocument,
        "config (lang: py).": model.PyConfig,
        "config (lang: cu).": model.CuConfig,
    },
    "runner_yml": {"": model.Extra},
    "competition_yaml": {"": schema.CompetitionDocument},
}


@pytest.mark.parametrize("name", MODELS)
def test_the_keys_of_a_file(name: str) -> None:
    """As the models that read the file describe them."""
    models = MODELS[name].items()
    compare(name, (line for prefix, kind in models for line in schema_lines(TypeAdapter(kind).json_schema(), prefix)))


def test_the_keys_of_a_gpu_type() -> None:
    """As the model that reads the file describes them; a type that starts from another has its vendor."""
    described = registry.FILE.json_schema()
    described["properties"]["extends"] = {"type": "string"}
    compare("gpu_type_toml", schema_lines({**described, "required": ["name"]}))


def test_a_difference_is_shown_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing and added lines, the command that writes the fixture, and where the change has to be named."""
    monkeypatch.delenv(fixtures.WRITE, raising=False)
    monkeypatch.setattr(fixtures, "FOLDER", tmp_path)
    (tmp_path / "x.txt").write_text("kept\nold\n", encoding="utf-8")
    compare("x", ["old", "kept"])
    with pytest.raises(pytest.fail.Exception) as caught:
        compare("x", ["new", "kept"])
    said = str(caught.value)
    assert "missing: old\n" in said
    assert "added:   new\n" in said
    assert "kept" not in said
    assert "python -m tests.unit.interfaces" in said
    assert "CHANGELOG.md" in said
