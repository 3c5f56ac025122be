"""Whatever a worker says late, its time has it: every channel is held back, alone and with others, by an adversary.

The adversary says all of a call at once, works, and then says what it held back (`withholds.py`). The channels are
those of the protocol: the words of the page (`call_flags.WORKER_WORDS`), the bytes of an output, and every message that
a worker is seen to send. Reported times are at least the work's, or there are none. Without the rule (the judge stops
its clock at the end mark and reads the rest later) each adversary that does not hold back the end itself wins.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sandbox.protocol import StepResult
from tasks.harness.judge.stopping import Timing
from tasks.harness.local import evaluate, lines_of
from tasks.harness.shared.call_flags import WORKER_WORDS
from tasks.harness.shared.values import DTYPES
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.support.judge_requests import request_of
from tests.support.waiting import PATIENCE_S

from .conftest import FIXTURES

ADVERSARY = (FIXTURES / "adversaries" / "withholds.py").read_text(encoding="utf-8")
#: What a worker says of a call by flags, in the order in which an honest one says it.
CHANNELS = ("bytes", *(name for name in WORKER_WORDS if name != "end of the dry run"))
#: As in the adversary.
DELAY_S = 0.02
#: A judge without the rule reads so much later.
LATER_S = 0.2
REFERENCE = """
import torch


def generate_input(size, seed):
    return torch.rand(size, generator=torch.Generator().manual_seed(seed))


def compute(x):
    return {output}


def ref_kernel(x):
    return compute(x)


def same(a, b):
    if isinstance(a, torch.Tensor):
        if not isinstance(b, torch.Tensor) or a.shape != b.shape or a.dtype != b.dtype:
            return False
        a, b = (t.contiguous().reshape(-1).view(torch.uint8) if t.numel() else t.reshape(-1) for t in (a, b))
        return a.numel() == 0 or bool((a == b).all())
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def check_implementation(data, output):
    good = same(compute(data), output)
    return good, "" if good else "another output"
"""
#: Kinds of output, as expressions over the input: those that go by flags, and those that have more to say than bytes.
DTYPE_KINDS = {name: f"(x * 3).to(torch.{name})" for name in DTYPES if "float4" not in name and "e8m0" not in name}
TENSORS = {
    "large": "x.repeat(300) + 1",
    "views": "(x.view(2, -1).t(), x[::2])",
    "several": "[x + 1, {'a': x * 2, 'b': (x - 1,)}, None]",
    "an input": "x",
    "parts of an input": "(x[3:9], x)",
    "with an empty tensor": "(x[:0], x + 1)",
    "a scalar tensor": "x.sum()",
    "a bool tensor of one element": "x.sum() > 30",
}
NUMBERS = {
    "an int": "int(x.argmax())",
    "a float": "float(x.sum())",
    "a bool": "bool(x.sum() > 30)",
    "a text": "str(int(x.argmax()))",
    "numbers among tensors": "(x + 1, int(x.argmax()))",
    "a dict of numbers": "{'at': int(x.argmax()), 'nested': [[float(x.max())]]}",
}


def _subsets(fixed: str, others: Sequence[str]) -> Iterator[frozenset[str]]:
    for count in range(len(others) + 1):
        for subset in itertools.combinations(others, count):
            yield frozenset({fixed, *subset})


def _name(held: Collection[str]) -> str:
    return ", ".join(sorted(held))


def _evaluated(
    processes: ForkedJudges,
    output: str,
    held: Collection[str],
    *,
    flags: bool = True,
    table: str | None = None,
    exits: bool = False,
    rule: bool = True,
    timeout_s: float = PATIENCE_S,
    more: str = "",
) -> StepResult:
    """One case, timed four times or more. `more`: code of the submission."""
    words = dict(WORKER_WORDS) if flags else {}
    submission = ADVERSARY
    for old, new in (
        ('HELD = frozenset(["bytes"])', f"HELD = frozenset({sorted(held)!r})"),
        ("CHANNELS = ()", f"CHANNELS = {CHANNELS!r}"),
        ("WORDS = {}", f"WORDS = {words!r}"),
        ("TABLE = None", f"TABLE = {table}"),
        ("EXITS = False", f"EXITS = {exits}"),
    ):
        assert old in submission
        submission = submission.replace(old, new)
    submission += f"\n\ndef compute(x):\n    return {output}\n\n\n{more}"
    request = request_of(
        REFERENCE.replace("{output}", output),
        submission,
        "size: 64; seed: 3",
        "benchmark",
        timeout_s=timeout_s,
        timing=Timing(min_runs=4, max_runs=4),
    )

    def start(role: str, **settings: Any) -> Any:  # noqa: ANN401 see local.Start
        first = None if rule or role != "judge" else (f"{__name__}:read_later", ())
        return processes._servers.start(role, **settings, first=first)

    (step,) = evaluate(request, start=start).steps
    return step


def read_later(_: Sequence[str]) -> None:
    """Take the rule from a judge: its clock stops at the end mark, and it reads what it uses some time later."""
    from tasks.harness.judge import snapshots, worker_client, worker_output

    ended: list[int] = []
    client: Any = worker_client.WorkerClient
    waits, receives, fill = client._wait_until_finished, client._receive, snapshots.Copy.fill

    def dawdle(self: Any) -> None:  # noqa: ANN401 a client
        # Not where it calls the control process.
        if isinstance(self._collector, worker_output.Collector):
            ended[:] = [time.perf_counter_ns()]
            time.sleep(LATER_S)

    def wait(self: Any, *given: Any) -> None:  # noqa: ANN401 handed through
        waits(self, *given)
        dawdle(self)

    def receive(self: Any, *given: Any, **options: Any) -> Any:  # noqa: ANN401 handed through
        message = receives(self, *given, **options)
        if message.get("op") == "done":
            dawdle(self)
        return message

    def fill_later(self: Any, places: Any) -> Any:  # noqa: ANN401 handed through
        filled = fill(self, places)
        return replace(filled, ended_ns=ended.pop(), stalled=False) if ended else filled

    replaced: Sequence[tuple[Any, str, Callable[..., Any]]] = (
        (client, "_wait_until_finished", wait),
        (client, "_receive", receive),
        (snapshots.Copy, "fill", fill_later),
    )
    for owner, name, value in replaced:
        setattr(owner, name, value)


def _mean_s(step: StepResult) -> float | None:
    """The reported time; None: none was."""
    assert step.judged is not None
    if step.judged.verdict != "accepted":
        return None
    return float(lines_of(step)["benchmark.0.mean"]) / 1e9


def _assert_no_gain(step: StepResult) -> None:
    mean_s = _mean_s(step)
    assert step.judged is not None
    assert step.judged.verdict in ("accepted", "wrong_answer", "rejected", "time_limit", "runtime_error"), step.judged
    assert mean_s is None or mean_s >= 0.98 * DELAY_S, step.judged


#: Seconds after which a judge gives up that waits for a message which does not come.
_GIVES_UP_S = 4.0
SUBSETS = [*_subsets("bytes", CHANNELS[1:])]
TABLES = [*_subsets("addresses", CHANNELS[2:])]
#: All outputs that a count can be, so that only its place is to be said.
COUNT = "(x > 0.5).sum().to(torch.uint8)"
COUNTS = "torch.arange(256, dtype=torch.uint8)"


def _limit_s(held: Collection[str]) -> float:
    silent = "number of addresses" in held and "end" not in held
    return _GIVES_UP_S if silent else PATIENCE_S


@pytest.mark.parametrize(
    ("held", "table"),
    [*((held, None) for held in SUBSETS), *((held, COUNTS) for held in TABLES)],
    ids=lambda value: _name(value) if isinstance(value, frozenset) else "table" if value else "",
)
def test_no_channel_that_is_held_back_hides_time(
    processes: ForkedJudges, held: frozenset[str], table: str | None
) -> None:
    """Every set of channels that comes after the work: the bytes among them, or the addresses.

    Where these choose one of all outputs that can occur, which lie there before the work.
    """
    output = "x + 1" if table is None else COUNT
    _assert_no_gain(_evaluated(processes, output, held, table=table, timeout_s=_limit_s(held)))


@pytest.mark.parametrize(
    ("held", "table"),
    [
        *((held, None) for held in SUBSETS if "end" not in held),
        *((held, COUNTS) for held in TABLES if "end" not in held),
    ],
    ids=lambda value: _name(value) if isinstance(value, frozenset) else "table" if value else "",
)
def test_without_the_rule_each_of_them_wins(processes: ForkedJudges, held: frozenset[str], table: str | None) -> None:
    """A judge that reads after its clock has stopped reports less than the work took."""
    step = _evaluated(processes, "x + 1" if table is None else COUNT, held, table=table, rule=False)
    assert _mean_s(step) is not None, step.judged
    # A busy machine may lengthen some calls.
    assert float(lines_of(step)["benchmark.0.best"]) / 1e9 < 0.5 * DELAY_S


@pytest.mark.parametrize(
    "output",
    [
        *(pytest.param(output, id=name) for name, output in TENSORS.items()),
        *(pytest.param(output, id=name, marks=pytest.mark.nightly) for name, output in DTYPE_KINDS.items()),
    ],
)
def test_outputs_of_every_kind_are_there_when_the_clock_stops(processes: ForkedJudges, output: str) -> None:
    """Bytes that come after the end are not in the output, whatever kind it is of."""
    step = _evaluated(processes, output, {"bytes"})
    assert step.judged is not None
    assert step.judged.verdict in ("wrong_answer", "rejected"), step.judged


@pytest.mark.parametrize(
    "output",
    [
        *(pytest.param(output, id=name) for name, output in (TENSORS | NUMBERS).items()),
        *(pytest.param(output, id=name, marks=pytest.mark.nightly) for name, output in DTYPE_KINDS.items()),
    ],
)
def test_honest_outputs_of_every_kind_are_accepted(processes: ForkedJudges, output: str) -> None:
    """With the time of their work; by flags or by message, as they can be."""
    step = _evaluated(processes, output, (), flags=False)
    mean_s = _mean_s(step)
    assert mean_s is not None, step.judged
    assert mean_s >= 0.98 * DELAY_S


@pytest.mark.parametrize("output", [*NUMBERS.values(), "x + 1"], ids=[*NUMBERS, "a tensor"])
def test_what_comes_after_a_message_is_not_in_the_output(processes: ForkedJudges, output: str) -> None:
    """Numbers are in the message that ends the call; bytes that are written after it are late."""
    _assert_no_gain(_evaluated(processes, output, {"bytes"}, flags=False))


#: Prints the name of each message that the worker sends.
LOG = """
plain_encode = main.encode


def logged(message, **options):
    print("SENT", message["op"])
    return plain_encode(message, **options)


main.encode = logged
"""


def _messages(processes: ForkedJudges, output: str) -> set[str]:
    """The messages that a worker is seen to send while a case is timed."""
    step = _evaluated(processes, output, (), flags=False, more=LOG)
    return {line.split()[1] for line in step.stdout.splitlines() if line.startswith("SENT ")}


#: Asserted below to be all that are seen.
MESSAGES = ("loaded", "armed", "done", "need", "flushed")


def test_every_message_is_held_back_below(processes: ForkedJudges) -> None:
    """A worker sends no message in a timed case that the next test does not hold back."""
    seen = _messages(processes, "x + 1") | _messages(processes, "(x, int(x.argmax()))")
    assert {"armed", "done"} <= seen <= set(MESSAGES), seen


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("output", ["x + 1", "int(x.argmax())"], ids=["by flags", "by message"])
def test_a_message_that_comes_late_shortens_nothing(processes: ForkedJudges, message: str, output: str) -> None:
    """Nor does it end a case before as many calls are timed as without."""
    step = _evaluated(processes, output, {message}, flags=False)
    _assert_no_gain(step)
    assert int(lines_of(step)["benchmark.0.runs"]) >= 4
    assert lines_of(step)["benchmark.0.runner.stopped"] == "runs"


@pytest.mark.parametrize("held", [{"bytes"}, {"bytes", "end"}], ids=_name)
def test_a_process_that_ends_after_its_work_gains_nothing(processes: ForkedJudges, held: set[str]) -> None:
    """Its memory is gone when the judge reads it, or its output is late."""
    _assert_no_gain(_evaluated(processes, "x + 1", held, exits=True))
