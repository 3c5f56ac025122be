"""`data top`, `progression`, `summary` and `user` over folders and files."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runner.cli import main
from tests.support.waiting import PATIENCE_S
from tests.unit.extras.data import samples
from tests.unit.extras.data.samples import row

LIBRARIES = ["huggingface_hub", "matplotlib", "numpy", "pandas", "pyarrow"]


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [
        row(1, "1", name="ada", score=40e-6, code="first\n"),
        row(2, "1", name="ada", score=10e-6, code="second\n"),
        row(3, "1", name="ada"),
        row(4, "2", name="bob", score=20e-6),
        row(5, "2", name="bob", score=9e-6, runner="H100"),
        row(6, "3", name=samples.HOSTILE, score=30e-6, code="\x1b[2J"),
        row(7, "4", name="bob", score=1.5, problem="sort"),
        row(8, "5", name="unlucky", problem="never"),
        row(9, "6", name="bob", problem="sort"),
    ]
    return samples.write_export(tmp_path_factory.mktemp("export"), rows, light_s=5e-6)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """A command's stdout; it must succeed."""
    assert main(["data", *map(str, arguments)]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def document(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:  # noqa: ANN401 a document
    """What a command prints with --json."""
    return json.loads(run(capsys, *arguments, "--json"))


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What a command says that ends with exit code 2, on one line of stderr."""
    assert main(["data", *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("kernel-runner: ")
    assert len(captured.err.splitlines()) == 1
    return captured.err


def test_top_ranks_per_problem_and_runner(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a table with units, and as JSON in seconds."""
    text = run(capsys, "top", folder, "--problem", "vectoradd", "--runner", "B200", "-n", 2)
    lines = [line.split() for line in text.splitlines()]
    assert lines[0][:3] == ["rank", "user_id", "user_name"]
    assert [line[:3] for line in lines[2:]] == [["1", "1", "ada"], ["2", "2", "bob"]]
    assert "10.00 µs" in text
    found = document(capsys, "top", folder)
    assert [(line["problem_name"], line["runner"], line["rank"], line["user_id"]) for line in found] == [
        ("sort", "B200", 1, "4"),
        ("vectoradd", "B200", 1, "1"),
        ("vectoradd", "B200", 2, "2"),
        ("vectoradd", "B200", 3, "3"),
        ("vectoradd", "H100", 1, "2"),
    ]
    assert found[1]["score"] == 10e-6
    assert found[1]["submission_time"] == "2030-03-01T11:00:00+00:00"


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize("command", [["top", "PATH"], ["summary", "PATH"], ["user", "PATH", "3"]])
def test_a_hostile_name_is_text(
    folder: Path, command: list[str], form: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """In tables as escapes, in JSON as ASCII."""
    text = run(capsys, *(str(folder) if word == "PATH" else word for word in command), *form)
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["top", "PATH", "--problem", "vectorad"], "no problem 'vectorad'; the nearest is vectoradd"),
        (["top", "PATH", "--problem", "xyz"], "there are never, sort, vectoradd"),
        (["progression", "PATH", "--user", "ada", "--problem", "sort"], "ada has no submission on sort"),
        (["plot", "PATH", "-o", "x.png"], "name one with --problem (never, sort, vectoradd)"),
        (["plot", "PATH", "-o", "x.png", "--problem", "vectoradd"], "name one with --runner (B200, H100)"),
        (
            ["plot", "PATH", "-o", "x.png", "--problem", "sort", "--kind", "progression", "--user", "bob"],
            "2 users are called 'bob': name one by its id (4, 6)",
        ),
        (["user", "PATH", "bob"], "3 users are called 'bob': name one by its id (2, 4, 6)"),
        (["top", "PATH", "-n", "0"], "-n"),
    ],
)
def test_what_does_not_exist_is_answered_with_the_nearest(
    folder: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence, exit code 2."""
    assert says in refusal(capsys, *(folder if word == "PATH" else word for word in arguments))


def test_what_is_no_export_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A path that is not there, a folder without an export, no parquet, other columns, several flat files."""
    for path in (tmp_path / "absent", tmp_path):
        text = refusal(capsys, "top", path)
        assert str(path) in text
        assert "`kernel-runner data export" in text
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"no parquet")
    assert f"{broken} is not readable as parquet" in refusal(capsys, "top", broken)
    other = samples.write_flat(tmp_path / "a_submissions.parquet", [row(1, score=1e-5)])
    samples.write_flat(tmp_path / "b_submissions.parquet", [row(1, score=1e-5)])
    assert "name one of a_submissions.parquet, b_submissions.parquet" in refusal(capsys, "top", tmp_path)
    assert main(["data", "top", str(other)]) == 0
    capsys.readouterr()
    pq.write_table(pa.table({"score": [1.0]}), tmp_path / "columns.parquet")
    assert "has no column submission_id" in refusal(capsys, "top", tmp_path / "columns.parquet")


@pytest.mark.parametrize(
    ("library", "command"),
    [
        ("pandas", ["top", "PATH"]),
        ("pyarrow", ["summary", "PATH"]),
        ("pyarrow", ["export", "PATH", "--private"]),
        ("pyarrow", ["verify", "PATH"]),
        ("pyarrow", ["check"]),
        ("matplotlib", ["plot", "PATH", "--output", "x.png"]),
        ("huggingface_hub", ["publish", "PATH", "a/b"]),
    ],
)
def test_a_missing_library_is_answered_with_how_to_install_it(
    library: str, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence, exit code 2, before the path is looked at."""
    monkeypatch.setattr("runner.extras.optional.find_spec", lambda name: None if name == library else find_spec(name))
    text = refusal(capsys, *command)
    assert text.startswith(f"kernel-runner: the data commands need {library}; ")
    assert "`pip install 'kernel-runner[data]'`" in text


def test_no_command_loads_the_extra_at_its_start() -> None:
    """The daemon starts without it, and `--help` of every command too."""
    program = (
        "import sys; from runner.cli import main, program; import runner.daemon.serve\n"
        "program([]); main(['data', 'top', '--help'])\n"
        f"print(sorted(set({LIBRARIES!r}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.stderr == "[]\n"
