"""Init's pure parts: result lines, excerpts, names, requests, what a judge may say."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import protocol
from sandbox.inside import output
from sandbox.inside.boot import parse_boot
from sandbox.inside.build_archive import check_name
from sandbox.inside.output import Excerpt, ResultLines
from sandbox.inside.pair import rebuild_frame, split_archive
from sandbox.inside.process import InitError
from sandbox.inside.steps import parse_request, runs_next, shorten
from sandbox.protocol import FrameError, Judged, Step, StepResult, StepsRequest

_RESULT = StepResult(name="t", command="c", start_ns=0, duration_ns=0, exit_code=0)


def _lines(*pieces: bytes) -> ResultLines:
    lines = ResultLines()
    for piece in pieces:
        lines.add(piece)
    return lines


@pytest.mark.parametrize(
    ("data", "values"),
    [
        (b"a: 1\nb: 2\n", {"a": "1", "b": "2"}),
        (b"a: 1", {"a": "1"}),
        (b"  a b :  c: d  \r\n", {"a b": "c: d"}),
        (b"a: 1\na: 2\n", {"a": "2"}),
        (b"no colon\n\n:\n", {"": ""}),
        (b"a:\x00\xff\n", {"a": "\ufffd\ufffd"}),
        (b"error: one\\ntwo\n", {"error": "one\\ntwo"}),
    ],
)
def test_result_lines_split_at_the_first_colon(data: bytes, values: dict[str, str]) -> None:
    """First colon, both sides stripped, last of a key wins, no colon no line, bad bytes replaced."""
    assert _lines(data).values() == values


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_result_lines_do_not_depend_on_the_cut(data: bytes, cuts: list[int]) -> None:
    """A pipe delivers in pieces of any size."""
    pieces, start = [], 0
    for cut in sorted(cuts):
        pieces.append(data[start:cut])
        start = max(start, cut)
    pieces.append(data[start:])
    assert _lines(*pieces).values() == _lines(data).values()


def test_result_lines_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too long a line, too many keys, too much in all: dropped, said once, the rest stays."""
    monkeypatch.setattr(output, "RESULT_LINE_BYTES", 20)
    lines = _lines(b"a: " + b"x" * 30 + b"\nb: 1\n")
    assert lines.values() == {"b": "1"}
    assert lines.complaint is not None
    assert "line of more than 20 bytes" in lines.complaint
    monkeypatch.setattr(output, "RESULT_KEYS", 2)
    lines = _lines(b"a: 1\nb: 2\nc: 3\na: 4\n")
    assert lines.values() == {"a": "4", "b": "2"}
    assert "more than 2 keys" in (lines.complaint or "")
    monkeypatch.setattr(output, "RESULT_BYTES", 15)
    assert _lines(b"a: 1\nb: 12345678\n").values() == {"a": "1"}
    # What is kept counts, however often a program says it (piston #301).
    assert _lines(b"a: 1\n" * 100, b"a: 22\n").values() == {"a": "22"}
    assert _lines(b"k" * 600 + b": 1\n").values() == {}


@given(st.binary(max_size=400), st.integers(0, 60), st.lists(st.integers(0, 400), max_size=6))
def test_an_excerpt_keeps_both_ends_within_its_limit(data: bytes, limit: int, cuts: list[int]) -> None:
    """Whatever the pieces: short streams whole, long ones head and tail, the count exact."""
    excerpt, start = Excerpt(limit), 0
    for cut in [*sorted(cuts), len(data)]:
        excerpt.add(data[start:cut])
        start = max(start, cut)
    assert excerpt.total_bytes == len(data)
    if len(data) <= limit:
        assert excerpt.text() == output.decode_text(data)
    else:
        head, tail = data[: limit - limit // 2], data[len(data) - limit // 2 :]
        middle = f"\n[... {len(data) - limit} bytes left out ...]\n"
        assert excerpt.text() == output.decode_text(head) + middle + output.decode_text(tail)


def test_an_excerpt_does_not_grow_with_the_stream() -> None:
    """A gigabyte of output must not be a gigabyte of memory."""
    excerpt = Excerpt(1000)
    for _ in range(1000):
        excerpt.add(b"x" * 65536)
    assert len(excerpt._head) + len(excerpt._tail) < 300_000
    assert excerpt.total_bytes == 65_536_000


@pytest.mark.parametrize("name", ["", "/etc/passwd", "..", "a/../b", "a\0b", "dir/", "."])
def test_names_that_leave_work_are_refused(name: str) -> None:
    """Absolute, climbing, empty and NUL names. Subdirectories and dots within names are fine."""
    with pytest.raises(ValueError, match="does not stay below /work"):
        check_name(name)
    for ordinary in ("a", "sub/dir/file.py", "..a", "a..b/c"):
        assert check_name(ordinary) == ordinary


def test_a_steps_request_is_the_same_after_its_journey() -> None:
    """What the daemon sends is what init runs."""
    step = Step(
        name="test",
        argv=("python", "eval.py"),
        env={"A": "b"},
        timeout_s=3.5,
        files={"cases.txt": b"\x00\xff"},
        remove_after=("x",),
        result_pipe=False,
        continue_if="passed",
        artifacts=("trace.zip",),
    )
    request = StepsRequest(files={"eval.py": b"pass"}, steps=(step,), keep=("eval.out",))
    (message,) = protocol.Decoder().feed(protocol.encode(request.to_message()))
    assert parse_request(message) == request


_ODD: tuple[dict[str, object], ...] = ({"argv": []}, {"argv": [1]}, {"continue_if": "maybe"}, {"artifacts": ["/x"]})
_STEP: dict[str, object] = dict(StepsRequest(files={}, steps=(Step(name="x", argv=("y",)),)).to_message()["steps"][0])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "pair"}, "booted for 'steps'"),
        ({"steps": [{}]}, "'steps' lacks 'name'"),
        ({"steps": 5}, "'steps' is int"),
        ({"files": {"../x": ""}}, "does not stay below"),
        ({"files": {"x": "%"}}, "not base64"),
        ({"files": None}, "'files' is NoneType"),
        ({"keep": ["/etc"]}, "does not stay below"),
        *(({"steps": [_STEP | odd]}, "does not parse") for odd in _ODD),
    ],
)
def test_a_request_that_makes_no_sense_is_a_sentence(change: dict[str, object], reason: str) -> None:
    """The harness never dies of a bad request; it says what is wrong."""
    message = {**StepsRequest(files={}, steps=(Step(name="x", argv=("y",)),)).to_message(), **change}
    with pytest.raises(InitError, match=reason):
        parse_request(message)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"protocol": 99}', '{"protocol": 2, "kind": "other"}'])
def test_a_boot_document_that_makes_no_sense_is_a_sentence(text: str) -> None:
    """Not JSON, no object, another version, an unknown kind."""
    with pytest.raises(InitError, match="boot"):
        parse_boot(text)


def test_steps_go_on_by_their_condition() -> None:
    """The three conditions against results that tell them apart."""
    passed = StepResult(**{**vars(_RESULT), "exit_code": 1, "result": {"check": "pass"}})
    failed = StepResult(**{**vars(_RESULT), "result": {"check": "fail"}})
    killed = StepResult(**{**vars(_RESULT), "exit_code": None, "signal": 9})
    late, wordy = (
        StepResult(**{**vars(passed), "exit_code": None, limit: True}) for limit in ("timed_out", "output_limit")
    )
    results = (passed, failed, killed, late, wordy)
    found = {
        condition: [runs_next(Step(name="x", argv=("y",), continue_if=condition), result) for result in results]
        for condition in ("always", "passed", "exit_0")
    }
    assert found == {
        "always": [True] * 5,
        "passed": [True, False, False, False, False],
        "exit_0": [False, True, False, False, False],
    }


def test_a_step_is_cut_until_it_fits() -> None:
    """First the output goes, then, if it must, the result lines; a small step is left alone."""
    big = StepResult(**{**vars(_RESULT), "stdout": "x" * 500_000, "result": {"check": "pass"}})
    assert shorten(_RESULT, 10_000) == _RESULT.to_message()
    message = shorten(big, 200_000)
    assert len(protocol.encode(message)) <= 200_000
    assert message["result"] == {"check": "pass"}
    assert "output was left out" in message["stderr"]
    huge = StepResult(**{**vars(big), "result": {"report": "y" * 500_000}})
    message = shorten(huge, 200_000)
    assert len(protocol.encode(message)) <= 200_000
    assert message["result"] == {}
    judged = Judged(verdict="accepted", message=None, assurance={}, announced=1, cases=({"profile": "y" * 500_000},))
    message = shorten(StepResult(**{**vars(big), "judged": judged}), 200_000)
    assert len(protocol.encode(message)) <= 200_000
    assert message["judged"] == {**asdict(judged), "cases": []}


def test_a_judge_may_say_four_things() -> None:
    """Unknown keys of known frames are refused, as other frames are."""
    message = {"type": "progress", "phase": "x", "done": 1, "total": 2}
    assert rebuild_frame(message) == message
    with pytest.raises(FrameError, match="unknown key 'extra'"):
        rebuild_frame({**_RESULT.to_message(), "extra": 1})
    assert rebuild_frame({"type": "prepared", "extra": 1}) == {"type": "prepared"}
    for kind in ("end", "ready", "request", "other"):
        with pytest.raises(FrameError, match="may send prepared, progress"):
            rebuild_frame({"type": kind})


def test_an_archive_of_several_parts_is_what_the_request_says() -> None:
    """Parts by name, in order; sizes that are not those of the archive are the daemon's fault."""
    assert split_archive(b"aabbb", {"7": 2, "3": 3}) == {"7": b"aa", "3": b"bbb"}
    assert split_archive(b"", {}) == {}
    for archive, sizes in ((b"aa", {}), (b"aa", {"7": 3}), (b"aa", {"7": 2, "3": 0})):
        with pytest.raises(InitError, match="names archives"):
            split_archive(archive, sizes)
