"""SIGKILL in the middle of a step of each kind, then a rerun: the result is that of an undisturbed run, byte for byte.

The step that the queue answers has the keys of its items: tests/integration/daemon/test_batches.py kills its client.
`test_hub.py` has an upload to the hub.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.integration.extras.trainers.kernelbook.service import Service, environment, kept, rows, run
from tests.support import killed

_IMPORTS = (
    "import httpx2, pandas, pyarrow.parquet\nfrom runner.cli import main\n"
    "from runner.extras.trainers.kernelbook import best, difficulty, prompts, synthesize, upload"
)
_PROGRAM = "import sys\nfrom runner.cli import main\nsys.exit(main(['kernelbook', *sys.argv[1:]]))"


def files(folder: Path, *, unfinished: bool = False) -> dict[str, bytes]:
    """What is in a folder, without journals."""
    found = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return {
        path.as_posix(): (folder / path).read_bytes()
        for path in found
        if "journal" not in path.name and (unfinished or not any(part.startswith(".") for part in path.parts))
    }


def killed_ever_later(
    service: Service, folder: Path, *arguments: str, every: int = 1, **variables: str
) -> tuple[dict[str, bytes], set[int]]:
    """The files that a run leaves in the end, as an undisturbed one; and how many answers runs had when killed.

    After each kill files are whole or not there, and the next run asks nothing that was answered.
    """
    whole, place = folder / "whole", folder / "killed"
    for made in (whole, place):
        made.mkdir()
    done = run(service, whole, *arguments, **variables)
    assert done.returncode == 0, done.stderr
    expected = files(whole)
    service.log.write_text("")
    given = environment(service, BATCH_SIZE="8", **variables)
    before, known, answers, number = Counter[str](), set[str](), set[int](), 0
    for number in killed.runs(_IMPORTS, _PROGRAM, *arguments, folder=place, environment=given, every=every, after=True):
        asked = service.names()
        assert not known & (asked - before).keys(), number
        assert files(place).items() <= expected.items(), number
        before, known = asked, kept(place / "outputs" / "journal.sqlite")
        answers.add(len(known))
    assert abs(number) > 3
    assert files(place, unfinished=True) == expected
    return expected, answers


def test_a_step_that_asks(service: Service, tmp_path: Path) -> None:
    """What the journal had is not asked again; some were killed while answers came, not only before and after."""
    made, answers = killed_ever_later(service, tmp_path, "filter", "--input", str(rows(tmp_path, ["ok"] * 60)))
    assert made
    assert answers & set(range(1, 60))


def test_best(service: Service, tmp_path: Path) -> None:
    """There is no journal: it begins anew."""
    made, _ = killed_ever_later(service, tmp_path, "best", "--input", str(rows(tmp_path, ["ok"] * 60)))
    assert made


def test_upload_to_a_folder(service: Service, tmp_path: Path) -> None:
    """All three sets, and nothing beside them."""
    file = str(rows(tmp_path, ["ok"] * 60))
    paths = {f"{name}_DATASET_PATH": file for name in ("FILTERED", "UNIQUE", "SYNTHETIC")}
    made, _ = killed_ever_later(service, tmp_path, "upload", "all", "--to", "sets", every=4, **paths)
    assert len([name for name in made if name.endswith(".parquet")]) == 5
    assert {name.split("/")[0] for name in made} == {"sets"}
