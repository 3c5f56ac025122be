"""Competition files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from runner.errors import TaskError
from runner.taskdef import load_competition
from tests.unit.taskdef.samples import changed, write

ROOT = Path(__file__).resolve().parents[3]


def competition(folder: Path, problems: str, head: str = "name: Contest\n") -> Path:
    """Write a competition file beside the sample task."""
    write(folder, changed(gpus=["T4"]))
    path = folder / "contest.yaml"
    path.write_text(f"{head}problems:\n{problems}")
    return path


@pytest.mark.parametrize(
    ("text", "deadline"),
    [
        ('"2030-06-30"', datetime(2030, 6, 30, tzinfo=UTC)),
        ('"2030-06-30 6:59"', datetime(2030, 6, 30, 6, 59, tzinfo=UTC)),
        ("2030-06-30", datetime(2030, 6, 30, tzinfo=UTC)),
        ("2030-06-30 18:00:00", datetime(2030, 6, 30, 18, 0, tzinfo=UTC)),
        ('""', None),
        ("null", None),
    ],
)
def test_a_deadline_is_utc(tmp_path: Path, text: str, deadline: datetime | None) -> None:
    """Both forms, quoted or not; an empty one is none."""
    loaded = load_competition(competition(tmp_path, f"  - {{name: add, directory: adder, deadline: {text}}}\n"))
    assert loaded.problems[0].deadline == deadline
    assert loaded.notes == ()


def test_a_bad_deadline_is_none_and_noted(tmp_path: Path) -> None:
    """KernelBot takes a year from now; we do as well, but say so."""
    path = competition(tmp_path, "  - {name: add, directory: adder, deadline: soon}\n")
    loaded = load_competition(path)
    assert loaded.problems[0].deadline is None
    assert loaded.notes == (
        f"{path}: problems[0].deadline: found 'soon', expected YYYY-MM-DD[ HH:MM] in UTC; taken as none",
    )


def test_a_problem_has_its_folder_and_its_own_types(tmp_path: Path) -> None:
    """The folder is loaded under the problem's name; gpus may be the file's or the task's."""
    path = competition(
        tmp_path,
        "  - {name: a, directory: adder, gpus: [H100, CPU]}\n  - {name: b, directory: ./adder}\n",
        head="name: Contest\ndescription: Nice.\ndeadline: never\n",
    )
    loaded = load_competition(path)
    assert (loaded.name, loaded.description) == ("Contest", "Nice.")
    assert [(problem.name, problem.folder.name, problem.gpus) for problem in loaded.problems] == [
        ("a", "a", ("H100", "CPU")),
        ("b", "b", ()),
    ]
    assert loaded.problems[1].folder.gpus == ("T4",)


@pytest.mark.parametrize(
    ("problems", "message"),
    [
        ("  - {name: a, directory: nowhere}\n", "problems[0].directory: found 'nowhere', which is no folder"),
        ("  - {name: a, directory: ../..}\n", "problems[0].directory: found '../..', which leaves the repository"),
        ("  - {name: a, directory: /etc}\n", "problems[0].directory: found '/etc', which leaves the repository"),
        ("  - {name: a}\n", "problems[0].directory: found nothing, expected a value (the key is required)"),
        ("  []\n", "problems: found [], expected at least 1 entry"),
        (
            "  - {name: a, directory: adder, gpu: [T4]}\n",
            (
                "problems[0].gpu: found an unknown key, expected one of name, directory, deadline, gpus "
                "(did you mean 'gpus'?)"
            ),
        ),
        (
            "  - {name: a, directory: adder}\n  - {name: a, directory: adder}\n",
            "problems[1].name: found 'a' a second time, expected different names",
        ),
    ],
)
def test_a_wrong_competition_is_refused(tmp_path: Path, problems: str, message: str) -> None:
    """Refusals name the file and the key; nothing is loaded in part."""
    path = competition(tmp_path, problems)
    with pytest.raises(TaskError) as caught:
        load_competition(path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_two_lists_of_problems_are_refused(tmp_path: Path) -> None:
    """A second `problems` key would silently replace the first, as has happened in published files."""
    path = competition(tmp_path, "  - {name: a, directory: adder}\nproblems:\n  - {name: b, directory: adder}\n")
    with pytest.raises(TaskError, match="line 4: found the key 'problems' a second time"):
        load_competition(path)


def test_a_missing_competition_is_refused(tmp_path: Path) -> None:
    """The message names the path."""
    with pytest.raises(TaskError, match=r"no\.yaml: found an unreadable file \(No such file or directory\)"):
        load_competition(tmp_path / "no.yaml")


def test_the_starter_set_loads() -> None:
    """Our own competition file lists the three problems, each offered without an accelerator."""
    loaded = load_competition(ROOT / "tasks" / "starter.yaml")
    assert [problem.name for problem in loaded.problems] == ["identity", "vectoradd", "nvfp4_gemv"]
    assert all("CPU" in problem.gpus and problem.deadline is None for problem in loaded.problems)
    assert loaded.notes == ()
