"""Every place that reads or stores a person's text, with and without a byte order mark."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

from runner.base.gpu_types import Registry
from runner.cli.arguments import read_submission
from runner.cli.install import _read_address
from runner.extras.boards.competition import load_competition
from runner.extras.config import SiteConfig
from runner.extras.data.people import read_exclusions
from runner.extras.trainers.client import results_file, sources
from runner.extras.trainers.kernelbook import best, rows
from runner.extras.trainers.kernelbook.settings import Settings
from runner.task_format import load
from tests.integration.store.conftest import Bench, Db, bench, db, one, store

__all__ = ["bench", "db", "store"]

ROOT = Path(__file__).resolve().parents[3]
TASK = Path(__file__).parent / "cases" / "numpy_seed"
MODULE = "import torch\n\n\nclass Model(torch.nn.Module):\n    pass\n"
ROW = json.dumps({"reference": MODULE, "candidate": MODULE, "key": "a"})
#: Modules that read files of the project's own, which have no mark.
OWN_FILES = {
    *("runner/cli/check.py", "runner/cli/install.py", "runner/devices/processes.py", "runner/store/queries.py"),
    *("runner/extras/boards/commands/task.py", "runner/extras/data/manifest.py", "runner/extras/mcp/commands.py"),
    *("runner/extras/data/shipped/analyze_submissions.py", "runner/extras/trainers/inside/worker/prebuild.py"),
    *("runner/extras/trainers/kernelbook/rows.py", "runner/extras/trainers/kernelbook/scripts.py"),
    "runner/store/schema/__init__.py",
}

Write = Callable[[str, str], Path]


def _task(write: Write) -> object:
    keys = yaml.safe_load((TASK / "task.yml").read_text())
    write("t/task.yml", yaml.safe_dump({**keys, "templates": {"Python": "template.py"}}))
    write("t/runner.yml", "hidden: [{size: 1, seed: 2}]\n")
    write("t/reference.py", (TASK / "reference.py").read_text())
    write("t/template.py", "def custom_kernel(data):\n    return data\n")
    competition = write("c.yaml", "name: c\nproblems: [{directory: t, name: t}]\n")
    return load(competition.parent / "t"), load_competition(competition)


def _gpu_type(write: Write) -> object:
    write("gpus/mine.toml", 'name = "MINE"\nextends = "CPU"\n')
    return Registry.load(write("gpus/other.toml", 'name = "OTHER"\nextends = "CPU"\n').parent).all()


def _config(write: Write) -> object:
    url = write("url", "postgresql://runner@db/kernelbot\n")
    token = write("token", "a" * 40)
    text = f'database_url_file = "{url}"\ngateway_admin_token_file = "{token}"\n'
    config = SiteConfig.load(write("config.toml", text), environ={})
    return config, config.require_database_url(), config.gateway_admin_token({})


def _folder(write: Write) -> object:
    write("m/one/reference.py", MODULE)
    write("m/one/mine.py", MODULE)
    return [entry.item for entry in sources.read(write("m/two/reference.py", MODULE).parents[1])]  # type: ignore[union-attr]


def _best(write: Write) -> object:
    source = write("rows.jsonl", json.dumps({"module_name": "a", "python_code": "x", "reward": 1.0}) + "\n")
    output = source.with_name("best.jsonl")
    best.run(source, output)
    return output.read_bytes()


def _results(write: Write) -> object:
    return list(results_file.read_rows(write("results.jsonl", '{"key": "a", "scope": "s", "facts": {}}\n')))


#: Place -> what it makes of files whose text begins with what `write` puts there.
PLACES: Mapping[str, Callable[[Write], object]] = {
    "a task folder, its templates and a competition": _task,
    "config.toml, the database's address, a secret": _config,
    "a GPU type": _gpu_type,
    "a submission": lambda write: read_submission(write("s.py", "#!POPCORN leaderboard a\n")),
    "JSON lines of candidates": lambda write: list(sources.read(write("c.jsonl", f"{ROW}\n{ROW}\n"))),
    "a folder of candidates": _folder,
    "results": _results,
    "rows of rewards": lambda write: list(rows.read(write("r.jsonl", '{"reward": 1}\n{"reward": 2}\n'))),
    "the best rows": _best,
    "variables of the pipeline": lambda write: Settings.load(write(".env", "THRESHOLD=0.5\n")).variables["THRESHOLD"],
    "exclusions of an export": lambda write: read_exclusions(write("x.txt", "user a\nsubmission 3\n")),
    "--database-url-file": lambda write: _read_address(write("u", "postgresql://runner@db/kernelbot\n")),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_file_means_the_same_with_a_mark(tmp_path: Path, place: str) -> None:
    """One mark at the start of every file that the place reads; a second one is text."""

    def read(mark: bytes) -> object:
        def write(name: str, text: str) -> Path:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(mark + text.encode())
            return path

        return PLACES[place](write)

    assert read(codecs.BOM_UTF8) == read(b"")


def test_a_submission_is_stored_without_a_mark(bench: Bench, db: Db) -> None:
    """Whichever frontend sends it; its directives count, those of a row that KernelBot made itself, too."""
    code = b"#!POPCORN leaderboard identity\ndef custom_kernel(data):\n    return data\n"
    bench.board()
    marked, plain = (
        bench.submit(leaderboard=None, code=mark + code, idempotency_key="same") for mark in (codecs.BOM_UTF8, b"")
    )
    assert marked == plain
    assert one(db, "SELECT count(*), min(code) AS code FROM leaderboard.code_files") == {"count": 1, "code": code}
    read = one(db, "SELECT runner.check_source(%s) AS text", codecs.BOM_UTF8 * 2 + code)
    assert read == {"text": "\ufeff" + code.decode()}


def test_no_other_place_reads_text() -> None:
    """Whoever reads a file as UTF-8 takes the encoding from runner.base.marks, or reads the project's own files."""
    reading = re.compile(r'\b(read_text|open)\((path, )?encoding="utf-8"|\.decode\("utf-8"\)\.(rstrip|splitlines)')
    readers = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "runner").rglob("*.py")
        if reading.search(path.read_text(encoding="utf-8"))
    }
    assert readers == OWN_FILES
