"""docs/adding-a-task.md says what is so: its example is a task, its tables list every key, its errors are ours."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from runner.base.errors import TaskError
from runner.extras.boards.competition import load_competition
from runner.task_format import load_folder, work
from runner.task_format.model import Extra, Harness, Ranking
from runner.task_format.schema import TaskDocument

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "adding-a-task.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text of one section of the page."""
    found = re.search(rf"^## {re.escape(title)}.*?$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found.group(1)


def block(title: str, language: str) -> str:
    """The first code block of a language in a section."""
    found = re.search(rf"^```{language}\n(.*?)^```", section(title), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{title}: {language}"
    return found.group(1)


def table_keys(title: str) -> set[str]:
    """The keys in the first column of a section's table."""
    cells = re.findall(r"^\| (`[^|]*?) \|", section(title), re.MULTILINE)
    return {key for cell in cells for key in re.findall(r"`(\w+)`", cell)}


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The folder that the page builds, beside the files it shares."""
    folder = tmp_path / "row_max"
    (folder / "templates").mkdir(parents=True)
    for name in ("eval.py", "utils.py"):
        (tmp_path / name).write_bytes((ROOT / "tasks" / "problems" / name).read_bytes())
    (folder / "task.py").write_text(block("1. The folder", "python"))
    (folder / "reference.py").write_text(block("2. The reference", "python"))
    (folder / "task.yml").write_text(block("3. task.yml", "yaml"))
    (folder / "runner.yml").write_text(block("4. runner.yml", "yaml"))
    (folder / "templates" / "torch_max.py").write_text(block("5. Try it", "python"))
    return folder


def test_the_example_is_a_task(example: Path) -> None:
    """The page's files make a folder that loads, with the work it states. So does the page's competition file."""
    folder = load_folder(example)
    assert (folder.task.harness, folder.task.ranking_by) == (Harness.BUILTIN, Ranking.GEOM)
    assert folder.gpus == ("CPU", "H100")
    assert folder.task.extra.bytes is not None
    assert work(folder.task.extra.bytes, {"rows": 2, "cols": 3}) == 32
    path = example.parent / "starter.yaml"
    path.write_text(block("Several at once", "yaml"))
    (problem,) = load_competition(path)
    assert (problem.name, problem.gpus, problem.deadline is None) == ("row-max", ("CPU",), False)


def test_the_tables_list_every_key() -> None:
    """A key of task.yml or runner.yml that the page lacks, or one too many, fails here."""
    assert table_keys("3. task.yml") == set(TaskDocument.model_fields)
    assert table_keys("4. runner.yml") == {field.name for field in dataclasses.fields(Extra)}


def test_the_errors_shown_are_the_errors_given(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page quotes a refusal word for word."""
    text = (example / "task.yml").read_text()
    text = text.replace('"rows": 127, "cols": 129', '"rows": "1;2", "cols": 129').replace('"geom"', '"geo"')
    (example / "task.yml").write_text(text)
    monkeypatch.chdir(example.parent)
    with pytest.raises(TaskError) as caught:
        load_folder(Path("row_max"))
    expected = "\n".join(
        line for line in section("5. Try it").splitlines() if line.startswith("tasks/problems/row_max/task.yml")
    )
    assert str(caught.value) == expected.replace("tasks/problems/row_max", "row_max")
