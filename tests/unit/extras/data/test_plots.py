"""Plots and reports: what they show of the data, and that names in them are text."""

from __future__ import annotations

import base64
import math
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.figure import Figure

from runner.base.errors import NotFoundError
from runner.cli import main
from runner.extras.data import plots
from runner.extras.data.analysis_commands import Kind
from runner.extras.data.report import report
from tests.unit.extras.data import samples
from tests.unit.extras.data.samples import HOSTILE, LIGHT_S, rich, row

KINDS = [kind.value for kind in Kind]


def frame(rows: Sequence[dict[str, Any]], *, light_s: float | None = LIGHT_S) -> pd.DataFrame:
    """Rows as `submissions.parquet` gives them."""
    return pd.DataFrame(
        [rich(line, sol=None if light_s is None or not line["score"] else light_s / line["score"]) for line in rows]
    )


def board(*rows: dict[str, Any], light_s: float | None = LIGHT_S) -> plots.Board:
    """The sample board of some rows."""
    return plots.board_of(frame(rows, light_s=light_s), "vectoradd", "B200")


@pytest.fixture(name="busy", scope="module")
def _busy() -> plots.Board:
    return board(*samples.competition())


@pytest.fixture(name="hostile", scope="module")
def _hostile() -> pd.DataFrame:
    rows = [
        *(row(number, "1", name=HOSTILE, problem=HOSTILE, runner="<b>$\x1b", score=1e-4 / number) for number in (1, 2)),
        row(3, "1", name=HOSTILE, problem=HOSTILE),
        row(4, "2", name="", problem=HOSTILE, runner="<b>$\x1b", score=2e-4, code="# 1\n"),
    ]
    return frame(rows)


def texts(figure: Figure) -> str:
    """All text of a figure, one per line."""
    root = ET.fromstring(plots.to_svg(figure))  # noqa: S314 our own picture
    return "\n".join("".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text"))


def values(line: Any, axis: str) -> list[float]:  # noqa: ANN401 a line of matplotlib
    """The coordinates of a line on an axis."""
    return [float(value) for value in (line.get_xdata() if axis == "x" else line.get_ydata())]


@pytest.mark.parametrize("kind", KINDS)
def test_the_speed_of_light_is_a_line_with_its_time(busy: plots.Board, kind: str) -> None:
    """In every plot of times, where the export knows it."""
    figure = plots.draw(kind, busy)
    assert "speed of light 8.60 µs" in texts(figure)
    lines: list[Any] = list(figure.axes[0].lines)
    ends = [line.get_xdata() if kind == "distribution" else line.get_ydata() for line in lines]
    assert any(len(end) == 2 and end[0] == end[1] and math.isclose(end[0], LIGHT_S) for end in ends)


def test_a_race_names_the_best_and_counts_all(busy: plots.Board) -> None:
    """With rank and score; invalid scores are in nothing."""
    shown = texts(plots.race(busy, count=3))
    assert len(re.findall(r"(?m)^[123]  \S+", shown)) == 3
    assert re.search(r"\d+ scores of \d+ users; lower is better", shown)
    bad = board(row(1, "ada", score=1e-5), row(2, "eve", score=-1.0), row(3, "eve", score=1e-9, passed=False))
    assert "1 score of 1 user;" in texts(plots.race(bad))


def test_a_progression_marks_records_and_attempts_without_a_score() -> None:
    """Each record once, each attempt as a mark of its user."""
    mine = board(row(1, score=4e-5), row(2), row(3, score=5e-5), row(4, score=2e-5), row(5), row(6, "bob", score=3e-5))
    figure = plots.progression(mine, ["ada", "bob"])
    above, below = figure.axes
    assert [values(line, "y") for line in below.lines if line.get_marker() == "x"] == [[0, 0], []]
    drawn = [values(line, "y") for line in above.lines if line.get_linestyle() == "None"]
    assert [line for line in drawn if line] == [[4e-5, 2e-5], [3e-5]]
    assert "4 scores, 2 attempts without" in texts(figure)
    with pytest.raises(NotFoundError, match="user eve"):
        plots.progression(mine, ["eve"])


def test_the_speed_of_light_is_unknown_where_rows_disagree() -> None:
    """Where the score is a mean of cases, score times `sol` is no time of a perfect kernel: no line claims one."""

    def cases(number: int, *times_ns: float) -> dict[str, Any]:
        sol = math.prod(light / time for light, time in zip((5, 500), times_ns, strict=True)) ** 0.5
        return rich(row(number, f"u{number}", score=sum(times_ns) / 2 * 1e-9), sol=sol)

    rows = [*(cases(number, 5.5, 1000 + number) for number in range(1, 6)), cases(6, 50, 520)]
    mine = plots.board_of(pd.DataFrame(rows), "vectoradd", "B200")
    for kind in KINDS:
        assert "speed of light" not in texts(plots.draw(kind, mine))


@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_name_is_text_in_a_picture(hostile: pd.DataFrame, kind: str) -> None:
    """No element of SVG, no formula, no control character."""
    figure = plots.draw(kind, plots.board_of(hostile, HOSTILE, "<b>$\x1b"))
    assert plots.to_png(figure)
    svg = plots.to_svg(figure)
    assert b"\x1b" not in svg
    root = ET.fromstring(svg)  # noqa: S314 our own picture
    assert {node.tag.rpartition("}")[2] for node in root.iter()} <= {
        *("svg", "metadata", "defs", "style", "g", "path", "use", "text", "tspan", "clipPath", "rect", "image"),
        *("RDF", "Work", "creator", "Agent", "title", "type", "format", "date"),
    }
    assert "<script>alert(1)</script>" in texts(figure)


class _Page(HTMLParser):
    """What a browser would load or run of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.sources: list[str] = []
        self.handlers: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag refers to."""
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("src", "href", "srcset", "data", "action"):
                self.sources.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)

    def handle_data(self, data: str) -> None:
        """Note what a reader sees."""
        self.text += data


def test_a_report_is_one_file_that_loads_and_runs_nothing(hostile: pd.DataFrame) -> None:
    """Pictures are inside, names are text, and the browser is told to load nothing."""
    page = _Page()
    document = report(hostile, HOSTILE)
    page.feed(document)
    assert page.tags <= {
        *("html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "footer"),
        *("table", "thead", "tbody", "tr", "th", "td", "figure", "img", "figcaption"),
    }
    assert page.handlers == []
    assert len(page.sources) == 3
    assert all(source.startswith("data:image/svg+xml;base64,") for source in page.sources)
    assert "\x1b" not in document
    assert "<script>alert(1)</script> $\\frac{1}{0}$ & \\x1b[2J\\u202e" in page.text
    assert "default-src 'none'" in document
    assert "http" not in re.sub(r"base64,[\w+/=]+", "", document).replace("http-equiv", "")
    for source in page.sources:
        ET.fromstring(base64.b64decode(source.partition(",")[2]))  # noqa: S314 our own picture


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return samples.write_export(tmp_path_factory.mktemp("export"), samples.competition(users=8), light_s=LIGHT_S)


def test_the_command_writes_a_report_and_users_by_name(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both in one call."""
    page, picture = tmp_path / "report.html", tmp_path / "users.svg"
    arguments = ["--kind", "progression", "--user", "ada", "--user", "id-1", "-o", str(picture), "--html", str(page)]
    assert main(["data", "plot", str(folder), *arguments]) == 0
    assert page.read_text(encoding="utf-8").count("<figure>") == 3
    assert "gau.nernst  " in picture.read_text(encoding="utf-8")


def test_settings_of_a_user_change_no_picture(
    busy: plots.Board, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a matplotlibrc nor a backend, which a shell in a notebook hands on and which need not be here."""
    plain = plots.to_png(plots.draw("race", busy))
    with mpl.rc_context({"savefig.bbox": "tight", "axes.facecolor": "black", "path.sketch": (1, 100, 2)}):
        assert plots.to_png(plots.draw("race", busy)) == plain
    monkeypatch.setenv("MPLBACKEND", "module://nowhere")
    assert main(["data", "plot", str(folder), "--output", str(tmp_path / "x.png")]) == 0
    assert "MPLBACKEND" not in os.environ


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--output or --html"),
        (["--output", "x.gif"], ".png or .svg"),
        (["--output", "x.png", "--kind", "progression", "--user", "ad"], "the nearest is ada"),
        (["--output", "/no/such/folder/x.png"], "/no/such/folder/x.png cannot be written"),
    ],
)
def test_the_command_says_what_is_wrong(
    folder: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence, exit code 2, and no file."""
    assert main(["data", "plot", str(folder), *arguments]) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.out == ""
