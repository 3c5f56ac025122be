"""`leaderboard`: publishing, changing, reading and deleting against a real database."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from psycopg.types.json import Jsonb

from runner.base.config import Config
from runner.cli.check import _tasks
from runner.cli.finding import Mark
from runner.task_format import load
from tests.integration.cli.conftest import Call, write_task
from tests.integration.store.conftest import Db

TASKS = Path(__file__).resolve().parents[4] / "tasks" / "problems"


def test_a_folder_or_a_zip_becomes_a_leaderboard(cli: Call, task_folder: Path, tmp_path: Path) -> None:
    """Open for a year, with the folder's name and GPU types; options replace them, without aliases and repetitions."""
    created = cli("leaderboard", "create", task_folder)
    assert (created.code, created.out) == (0, "")
    assert "echo is open on CPU" in created.err
    (listed,) = cli("leaderboard", "list", "--json").document
    assert (listed["name"], listed["gpus"], listed["submissions"]) == ("echo", ["CPU"], 0)
    left = datetime.fromisoformat(listed["deadline"]) - datetime.now(UTC)
    assert timedelta(days=364) < left <= timedelta(days=365)
    archive = shutil.make_archive(str(tmp_path / "sorting"), "zip", task_folder)
    arguments = ("--name", "zipped", "--gpu", "H100", "--gpu", "CPU", "--gpu", "H100", "--deadline", "2031-06-30 18:00")
    assert cli("leaderboard", "create", archive, *arguments).code == 0
    (_, listed) = cli("leaderboard", "list", "--json").document
    assert (listed["name"], listed["gpus"]) == ("zipped", ["CPU", "H100"])
    assert datetime.fromisoformat(listed["deadline"]) == datetime(2031, 6, 30, 18, tzinfo=UTC)
    assert "2031-06-30 18:00:00" in cli("leaderboard", "list").out


WRONG: list[tuple[dict[str, Any], tuple[str, ...], str]] = [
    ({"tests": "none"}, (), "tests"),
    ({"ranking_by": "best"}, (), "ranking_by"),
    ({"gpus": None}, (), "no GPU type; give --gpu"),
    ({}, ("--gpu", "H1000"), "did you mean 'H100'"),
    ({}, ("--deadline", "tomorrow"), "expected a date like"),
    ({}, ("--name", "two words"), "expected no white space"),
    ({}, ("--name", " first"), "expected no white space"),
    ({}, ("--name", "last\u00a0"), "expected no white space"),
    ({}, ("--name", "a\u202eb"), "expected visible text"),
    ({}, ("--name", "a\u200bb"), "expected visible text"),
]


NO_DEMAND = [
    (("--timing", "audited_host"), "found 'audited_host', expected claimed, measured, audited"),
    (("--tolerance", "0.7"), "found '0.7', expected a number from 0.01 to 0.5"),
    (("--tolerance", "5%"), "found '5%', expected a number"),
    (("--tolerance", "nan"), "found 'nan', expected a number"),
]


def test_what_is_wrong_is_named_and_nothing_is_stored(cli: Call, tmp_path: Path) -> None:
    """Usage exit code, one message without a traceback, an empty database; nor does a wrong update change anything."""
    for number, (keys, arguments, says) in enumerate([*WRONG, *(({}, *demand) for demand in NO_DEMAND)]):
        said = cli("leaderboard", "create", write_task(tmp_path / f"odd{number}", **keys), *arguments)
        assert (said.code, says in said.err, "Traceback" in said.err) == (2, True, False)
        assert said.err.startswith("kernel-runner: ")
        assert cli("leaderboard", "list", "--json").document == []
    folder = write_task(tmp_path / "right", gpus=["CPU"])
    assert cli("leaderboard", "create", folder).code == 0
    before = cli("leaderboard", "list", "--json").document
    for arguments, says in NO_DEMAND:
        said = cli("leaderboard", "update", folder, *arguments)
        assert (said.code, says in said.err) == (2, True)
        assert cli("leaderboard", "list", "--json").document == before


def test_a_task_is_not_offered_where_it_does_not_fit(cli: Call, tmp_path: Path) -> None:
    """By the memory that its cases need: the refusal says which case, how much, and what the type has."""
    folder = write_task(tmp_path / "large", gpus=["CPU", "H100"])
    (folder / "runner.yml").write_text('memory: "n * 2 ** 29"')
    outcome = cli("leaderboard", "create", folder)
    assert (outcome.code, cli("leaderboard", "list", "--json").document) == (2, [])
    says = "case n: 16; seed: 3 needs 8 GiB of memory (its `memory`), more than the 4 GiB of CPU's container"
    assert says in outcome.err
    assert cli("leaderboard", "create", folder, "--gpu", "H100").code == 0
    (folder / "runner.yml").write_text("cases: {MI300X: {tests: []}}")
    outcome = cli("leaderboard", "create", folder, "--gpu", "MI300X", "--name", "aliased")
    says = "runner.yml has cases for MI300X, expected them for MI300, whose alias it is"
    assert (outcome.code, says in outcome.err) == (2, True)


def test_an_update_keeps_what_is_not_given(cli: Call, board: str, tmp_path: Path) -> None:
    """The task is replaced; deadline and GPU types stay unless asked for."""
    before = cli("leaderboard", "task", board, "--json").document
    changed = write_task(tmp_path / "changed", description="Now different.", gpus=["H100"])
    assert cli("leaderboard", "update", changed, "--name", board).code == 0
    after = cli("leaderboard", "task", board, "--json").document
    assert after["description"] == "Now different."
    assert (after["deadline"], after["gpus"]) == (before["deadline"], ["CPU"])
    assert cli("leaderboard", "update", changed, "--name", board, "--deadline", "2033-01-01", "--gpu", "L4").code == 0
    last = cli("leaderboard", "task", board, "--json").document
    assert (last["gpus"], last["deadline"][:10]) == (["L4"], "2033-01-01")


def test_a_board_says_what_a_time_needs_to_rank(cli: Call, task_folder: Path) -> None:
    """Set when it is made or later, shown, kept by an update that does not name it; so is whether code opens."""
    update = ("leaderboard", "update", task_folder, "--name", "strict")
    made = ("leaderboard", "create", *update[2:], "--timing", "audited", "--tolerance", "0.05")
    assert cli(*made).code == 0
    (listed,) = cli("leaderboard", "list", "--json").document
    assert (listed["timing"], listed["tolerance"]) == ("audited", 0.05)
    assert "audited times only (tolerance 5 %)" in cli("leaderboard", "list").out
    assert cli("leaderboard", "show", "strict").out.startswith("ranks audited times only (tolerance 5 %)\n")
    assert cli(*update).code == 0
    assert cli("leaderboard", "task", "strict", "--json").document["tolerance"] == 0.05
    changes = ("--timing", "measured", "--tolerance", "0.2")
    dry = cli(*update, *changes, "--dry-run")
    assert ("timing: audited → measured" in dry.out, "tolerance: 0.05 → 0.2" in dry.out) == (True, True)
    assert "audited times only" in cli("leaderboard", "task", "strict").out
    assert cli(*update, *changes).code == 0
    assert "ranks measured and audited times only (tolerance 20 %)" in cli("leaderboard", "task", "strict").out
    assert "code after the deadline: open → closed" in cli(*update, "--closed-code").out
    assert cli(*update).code == 0
    assert cli("leaderboard", "task", "strict", "--json").document["open_code"] is False


def test_a_board_on_which_nobody_can_rank_says_so(
    cli: Call, board: str, task_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its author reads it when the board is made or changed: its end has passed, its times or its type do not count."""
    # An author who mistypes the year must not read that the board is open.
    created = cli("leaderboard", "create", task_folder, "--name", "late", "--deadline", "2020-01-01")
    assert "is closed: its deadline 2020-01-01 00:00:00 UTC has passed" in created.err
    updated = cli("leaderboard", "update", task_folder, "--name", board, "--deadline", "2020-01-01")
    assert "is closed: its deadline 2020-01-01" in updated.err
    # An eval program of the task's own takes its times itself, and no clock of ours vouches for them.
    own = write_task(
        tmp_path / "own",
        files=[{"name": "submission.py", "source": "@SUBMISSION@"}, {"name": "eval.py", "source": "reference.py"}],
    )
    assert "nothing will rank" not in cli("leaderboard", "create", own).err
    assert "nothing will rank" in cli("leaderboard", "update", own, "--timing", "measured").err
    (tmp_path / "gpus.d").mkdir()
    (tmp_path / "gpus.d" / "E.toml").write_text('extends = "CPU"\nname = "E"\nemulate_cuda = true\n')
    monkeypatch.setenv("KERNEL_RUNNER_GPUS_DIR", str(tmp_path / "gpus.d"))
    said = cli("leaderboard", "create", task_folder, "--name", "emulated", "--gpu", "E")
    says = "E emulates CUDA: submissions are tested and timed there, and not ranked"
    assert (said.code, says in said.err) == (0, True)
    assert "emulates" not in cli("leaderboard", "create", task_folder, "--name", "plain", "--gpu", "CPU").err


def test_the_task_and_its_files_can_be_read_but_not_the_secret_seed(cli: Call, board: str) -> None:
    """The page lists the files, a named file is printed as it is, an unknown one names those there are."""
    page = cli("leaderboard", "task", board)
    assert "reference.py" in page.out
    assert "Give back what you get." in page.out
    assert "secret_seed" not in cli("leaderboard", "task", board, "--json").out
    assert cli("leaderboard", "task", board, "reference.py").out.startswith("def generate_input")
    missing = cli("leaderboard", "task", board, "refrence.py")
    assert (missing.code, "reference.py" in missing.err) == (2, True)


def test_a_dry_run_of_an_update_shows_each_change_and_makes_none(
    cli: Call, task_folder: Path, submission_file: Path
) -> None:
    """Deadline and GPU types with the task's keys; what needs --force is marked, refused without, and done with it."""
    created = cli("leaderboard", "create", task_folder, "--name", "b", "--gpu", "CPU", "--deadline", "2032-02-03")
    assert created.code == 0
    assert cli("leaderboard", "update", task_folder, "--name", "b", "--dry-run").out == "= b: unchanged\n"
    assert cli("submit", submission_file, "--leaderboard", "b", "--user", "alice").code == 0
    shutil.rmtree(task_folder)
    write_task(task_folder, benchmarks=[{"n": 99, "seed": 1}], description="Changed.")
    changes = ("--gpu", "CPU", "--gpu", "L4", "--deadline", "2033-04-05")
    update = ("leaderboard", "update", task_folder, "--name", "b", *changes)
    for arguments in (("--dry-run",), ()):
        refused = cli(*update, *arguments)
        assert refused.code == 2
        assert refused.out.splitlines() == [
            "~ b: would be updated",
            "    benchmarks: +1 -1 entries   needs --force (1 submissions)",
            "    description: Give back what you get. → Changed.",
            "    deadline: 2032-02-03 00:00:00 → 2033-04-05 00:00:00 UTC",
            "    gpus: CPU → CPU, L4",
        ]
        assert "has 1 submissions and benchmarks would change" in refused.err
    shown = cli(*update, "--dry-run", "--force", "--json")
    assert (shown.code, shown.document["action"], shown.document["needs_force"]) == (0, "update", True)
    assert described(cli, "b") == ["Give back what you get."]
    assert cli(*update, "--force").out.startswith("~ b: updated\n")
    assert described(cli, "b") == ["Changed."]
    assert cli(*update, "--dry-run").out == "= b: unchanged\n"


def described(cli: Call, *boards: str) -> list[str]:
    """The descriptions of these leaderboards."""
    return [cli("leaderboard", "task", board, "--json").document["description"] for board in boards]


def write_competition(folder: Path, *problems: dict[str, object]) -> Path:
    """A competition file beside its task folders."""
    path = folder / "cup.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    document = {"name": "cup", "description": "A cup.", "deadline": "2032-02-03", "problems": list(problems)}
    path.write_text(yaml.safe_dump(document))
    return path


def entry(directory: str, **keys: object) -> dict[str, object]:
    """A problem of a competition file."""
    return {"directory": directory, "name": f"cup-{directory}", "deadline": "2032-02-03", "gpus": ["CPU"], **keys}


def test_a_competition_creates_and_then_updates_its_leaderboards(cli: Call, tmp_path: Path) -> None:
    """The first import creates, the next finds nothing to do and prolongs nothing; one without GPU types is skipped."""
    first, second = write_task(tmp_path / "first", gpus=["CPU"]), write_task(tmp_path / "second", gpus=[])
    always = write_task(tmp_path / "always")
    entries = entry(first.name, gpus=["L4"]), entry(second.name, gpus=[]), entry(always.name, deadline="")
    competition = write_competition(tmp_path, *entries)
    created = cli("leaderboard", "import", competition)
    assert created.code == 0
    assert "+ cup-first: created on L4 until 2032-02-03" in created.out
    assert "- cup-second: skipped\n    no GPU type is named for it" in created.out
    before = cli("leaderboard", "list", "--json").document
    assert {board["name"]: board["gpus"] for board in before} == {"cup-always": ["CPU"], "cup-first": ["L4"]}
    again = cli("leaderboard", "import", competition).out
    assert all(f"= {name}: unchanged" in again for name in ("cup-first", "cup-always"))
    assert cli("leaderboard", "list", "--json").document == before
    (first / "reference.py").write_text((first / "reference.py").read_text() + "# More.\n")
    assert "~ cup-first: updated\n    files.reference.py: +1 -0 lines" in cli("leaderboard", "import", competition).out
    assert cli("leaderboard", "task", "cup-first", "reference.py").out.endswith("# More.\n")


def test_an_import_that_one_board_stops_stores_nothing(cli: Call, tmp_path: Path) -> None:
    """Not the boards before it either, and a dry run says so, too."""
    for name in ("first", "second"):
        write_task(tmp_path / name)
    for key, value, says in (
        ("name", "two words", "expected no white space"),
        ("name", "a/b", "found a slash"),
        ("name", "a\0b", "expected visible text"),
        ("deadline", "9999-12-31", "at the latest"),
    ):
        competition = write_competition(tmp_path, entry("first"), entry("second", **{key: value}))
        for options in ((), ("--dry-run",)):
            outcome = cli("leaderboard", "import", competition, *options)
            assert (outcome.code, says in outcome.err) == (2, True), outcome.err
        assert cli("leaderboard", "list", "--json").document == []


def test_an_import_that_breaks_comparability_needs_force_and_else_stores_nothing(
    cli: Call, tmp_path: Path, submission_file: Path
) -> None:
    """What needs it is marked, in a dry run too, and the boards beside it stay as they are until --force is given."""
    for name in ("first", "second"):
        write_task(tmp_path / name)
    competition = write_competition(tmp_path, entry("first"), entry("second"))
    assert cli("leaderboard", "import", competition).code == 0
    assert cli("submit", submission_file, "--leaderboard", "cup-second", "--user", "alice").code == 0
    for name in ("first", "second"):
        shutil.rmtree(tmp_path / name)
        write_task(tmp_path / name, benchmarks=[{"n": 99, "seed": 1}], description="Changed.")
    for arguments in (("--dry-run",), ()):
        refused = cli("leaderboard", "import", competition, *arguments)
        assert (refused.code, refused.out.count("needs --force")) == (2, 1)
        assert "    benchmarks: +1 -1 entries   needs --force (1 submissions)\n" in refused.out
        assert "~ cup-first: would be updated\n" in refused.out
        assert all(said in refused.err for said in ("nothing is stored", "cup-second (1 submissions; benchmarks)"))
        assert described(cli, "cup-first") == ["Give back what you get."]
    assert cli("leaderboard", "import", competition, "--dry-run", "--force").code == 0
    assert described(cli, "cup-second") == ["Give back what you get."]
    assert cli("leaderboard", "import", competition, "--force").code == 0
    assert described(cli, "cup-first", "cup-second") == ["Changed."] * 2


def test_boards_of_a_checkout_are_judged_where_a_shipped_task_has_their_name(
    cli: Call, tmp_path: Path, submission_file: Path
) -> None:
    """A line says which folder each got; a board with submissions keeps its judge, whatever is forced."""
    files = [
        {"name": "submission.py", "source": "@SUBMISSION@"},
        {"name": "reference.py", "source": "reference.py"},
        {"name": "eval.py", "source": "eval.py"},
    ]
    for name in ("vectoradd", "other"):
        (write_task(tmp_path / name, files=files) / "eval.py").write_text("print('passes')\n")
    problems = [entry(name, name=name) for name in ("vectoradd", "other")]
    competition = write_competition(tmp_path, *problems)
    created = cli("leaderboard", "import", competition, "--judged")
    assert created.code == 0, created.err
    assert "    judged: tasks/problems/vectoradd in place of the file's folder\n" in created.out
    assert "    not judged: its own eval program decides, as no shipped board has this name\n" in created.out
    before = [cli("leaderboard", "task", name, "--json").document for name in ("vectoradd", "other")]
    assert (before[0]["extra"]["harness"], before[1]["extra"]) == ("builtin", {})
    assert before[0]["task"]["tests"] == [dict(case) for case in load(TASKS / "vectoradd").task.tests]
    for name in ("vectoradd", "other"):
        assert cli("submit", submission_file, "--leaderboard", name, "--user", "alice").code == 0
    (tmp_path / "other" / "runner.yml").write_text("harness: builtin\n")
    for arguments in ((), ("--force",)):
        refused = cli("leaderboard", "import", competition, *arguments)
        said = ("    runner.yml: harness: ", "   needs another leaderboard (1 submissions)")
        assert (refused.code, *map(refused.out.count, said)) == (2, 2, 2)
        assert "'vectoradd' has 1 submissions, and another evaluator would decide" in refused.err
    assert cli("leaderboard", "update", tmp_path / "vectoradd", "--force").code == 2
    assert cli("leaderboard", "import", competition, "--judged", "--force").code == 2
    after = [cli("leaderboard", "task", name, "--json").document for name in ("vectoradd", "other")]
    assert [board["task"] for board in after] == [board["task"] for board in before]


def checked_tasks(url: str) -> tuple[Mark, str]:
    """What `check` says of the leaderboards' tasks."""
    finding = _tasks(Config(database_url=url, state_dir=Path("/nowhere")))
    return finding.mark, finding.fact


#: Tasks that load nowhere, as SQL makes them of a right one.
UNSOUND: Final = (
    *(f"task - '{key}'" for key in ("files", "lang", "config")),
    *(f"jsonb_set(task, '{{{key}}}', '7')" for key in ("files", "lang", "config", "tests", "ranking_by")),
    *("'[1]'", "'\"text\"'", "('{\"n\": ' || repeat('9', 5000) || '}')::jsonb"),
)


def test_a_board_that_can_evaluate_nothing_is_named(cli: Call, board: str, db: Db, database_url: str) -> None:
    """By `leaderboard list`, `migrate` and `check`, with the reason: what the daemon would say of each submission."""
    (kept,) = db.execute("SELECT task FROM leaderboard.leaderboard").fetchall()
    for task in UNSOUND:
        db.execute("UPDATE leaderboard.leaderboard SET task = %s", [Jsonb(kept["task"])])
        db.execute(f"UPDATE leaderboard.leaderboard SET task = {task}".encode())  # noqa: S608 - of the test
        (listed,) = cli("leaderboard", "list", "--json").document
        assert listed["task_fault"].startswith(f"leaderboard '{board}': "), task
        for command in (("leaderboard", "list"), ("migrate",)):
            said = cli(*command)
            assert (said.code, listed["task_fault"].split(";", maxsplit=1)[0] in said.err) == (0, True), task
        assert checked_tasks(database_url) == (Mark.WARNING, listed["task_fault"]), task
    db.execute("UPDATE leaderboard.leaderboard SET deadline = now() - interval '1 hour'")
    assert cli("leaderboard", "list", "--json").document[0]["task_fault"] is None


def test_keys_of_a_later_kernelbot_are_named_and_not_used(
    cli: Call, board: str, task_folder: Path, db: Db, database_url: str
) -> None:
    """By `leaderboard list` and `show`, `migrate` and `check`; the task loads."""
    db.execute('UPDATE leaderboard.leaderboard SET task = task || \'{"validation": null, "later": 1}\'')
    warning = "leaderboard echo: this release knows and uses no later of its task"
    for command in (("leaderboard", "list"), ("leaderboard", "show", board), ("migrate",)):
        said = cli(*command)
        assert (said.code, warning in said.err) == (0, True)
    assert cli("leaderboard", "list", "--json").document[0]["task_fault"] is None
    later = "echo: unknown and not used: later"
    assert checked_tasks(database_url) == (Mark.WARNING, f"those of open leaderboards load; {later}")
    assert cli("leaderboard", "create", task_folder, "--name", "broken").code == 0
    db.execute("UPDATE leaderboard.leaderboard SET task = task - 'lang' WHERE name = 'broken'")
    broken = "leaderboard 'broken': task.lang: found nothing, expected a value (the key is required)."
    assert checked_tasks(database_url) == (Mark.WARNING, f"{broken} {later}")
