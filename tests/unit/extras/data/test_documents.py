"""What the pages show of exported submissions, run as it is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import HfApi

from runner.cli import main
from runner.extras.data import publish as publishing
from tests.fakes import hub as fake
from tests.integration.documents.commands import ROOT, shown, words
from tests.unit.extras.data import samples
from tests.unit.extras.data.test_shipped import python

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

PAGE = ROOT / "docs" / "data.md"
#: Of an export that is there: the others ask the database.
_OURS = re.compile(r"kernel-runner data (top|progression|summary|user|plot|publish) export\b")
COMMANDS = sorted({found.command for found in shown() if _OURS.match(found.command)})


@pytest.fixture(name="place", scope="module")
def _place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with an exported folder in it, and a hub."""
    place = tmp_path_factory.mktemp("place")
    samples.write_export(place / "export", samples.competition(users=8), light_s=samples.LIGHT_S)
    with fake.hub() as hub, pytest.MonkeyPatch.context() as patch:
        patch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
        # The sample has not all files of an export; tests/integration/extras/data publishes a real one.
        patch.setattr(publishing, "verify", lambda *_: [])
        patch.setattr(publishing, "hub", lambda: HfApi(endpoint=hub.endpoint, token=fake.TOKEN))
        yield place


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_does_what_the_page_says(
    place: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends well, prints what it is to print, and writes what it is to write."""
    monkeypatch.chdir(place)
    arguments, _ = words(command)
    assert main(arguments[1:]) == 0
    captured = capsys.readouterr()
    files = [argument for argument in arguments if re.fullmatch(r"\w+\.(png|svg|html)", argument)]
    assert all(Path(name).stat().st_size > 1000 for name in files)
    assert bool(captured.out) != bool(files)


def test_the_python_of_the_page_runs_in_an_exported_folder(place: Path) -> None:
    """As it stands, without the repository on its path."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    done = python(place / "export", "-c", program)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 4
    assert "\u00b5s" in done.stdout
