"""Workers that say anything in place of what they are asked: no judge ends by it, and no neighbour feels it.

Every value stands at some place of what a worker says, and every place has many values;
`KERNEL_RUNNER_TEST_EXAMPLES` says how many rounds there are, each with other pairs.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tasks.harness.local import Start
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.acceptance.modules.problems import PROBLEMS, candidate
from tests.support import emulated_gpu
from tests.support.hostile_values import VALUES
from tests.support.local_modules import evaluate, group_of

ROUNDS = int(os.environ.get("KERNEL_RUNNER_TEST_EXAMPLES", "1"))
_GOOD = candidate("linear")
_RETURN = "return torch.relu(self.l(x))"
_HEAD = (
    "import torch\nfrom runner.extras.trainers.inside.worker import module\n"
    "from tasks.harness.worker import main\nfrom tasks.harness.shared import values\n"
    "x = torch.rand(8, 16) + 1\nHost, Worker = module.Host, main.Worker\n\ndef value():\n    return {value}\n\n"
)
#: Where a worker's word stands -> what a candidate does to have another one there.
_PLACES = {
    "an output": "",
    "an output of a timed call": "",
    "a description": "Host._describe = lambda self: value()\n",
    "a state": "Host._describe = lambda self: {'state': value(), 'lazy': False}\n",
    "an entry": "Host._describe = lambda self: {'state': [value()], 'lazy': False}\n",
    "a name": "Host._describe = lambda self: {'state': [[value(), [2], 'torch.float32']], 'lazy': False}\n",
    "a size": "Host._describe = lambda self: {'state': [['a', [value()], 'torch.float32']], 'lazy': False}\n",
    "laziness": "Host._describe = lambda self: {'state': [], 'lazy': value()}\n",
    "what is left": "Host._left = lambda self, order: value()\n",
    "one that is left": "Host._left = lambda self, order: [value()]\n",
    "the answer to weights": "Host._load_state = lambda self, order: value()\n",
    "a tree": (
        "describe = values.Outgoing.describe\n\ndef forged(*given):\n    found = describe(*given)\n"
        "    found.tree = value()\n    return found\nvalues.Outgoing.describe = forged\n"
    ),
    "a node": (
        "describe = values.Outgoing.describe\n\ndef forged(*given):\n    found = describe(*given)\n"
        "    found.tree = {key: value() for key in found.tree}\n    return found\nvalues.Outgoing.describe = forged\n"
    ),
    "a claim": (
        "deliver = Worker._deliver\nWorker._deliver = lambda *given: {**deliver(*given), 'claim_ns': value()}\n"
    ),
    "an answer": "Worker._deliver = lambda *given: {'op': value()}\n",
    "a need": "Worker._return_described = lambda *given: {'op': 'need', 'bytes': value()}\n",
}


def _hostile(place: str, name: str) -> str:
    text = _GOOD
    if place == "an output":
        text = _GOOD.replace(_RETURN, "return value()")
    elif place == "an output of a timed call":
        counted = "self.c = getattr(self, 'c', 0) + 1; return value() if self.c > 6 else torch.relu(self.l(x))"
        text = _GOOD.replace(_RETURN, counted)
    return _HEAD.replace("{value}", VALUES[name]) + _PLACES[place] + text


def _pairs(number: int) -> list[tuple[str, str]]:
    """Each value at one place; other places in other rounds."""
    places = list(_PLACES)
    return [(places[(index + number) % len(places)], name) for index, name in enumerate(VALUES)]


def _judged(pairs: list[tuple[str, str]], **how: Any) -> None:  # noqa: ANN401 as evaluate takes it
    codes = [_GOOD, *(_hostile(place, name) for place, name in pairs), _GOOD]
    rows = evaluate(group_of(PROBLEMS["linear"], *codes, timed_calls=5, inputs=2, timeout_s=60.0), **how)
    said = {
        pair: (row["verdict"], row["message"])
        for pair, row in zip(pairs, rows[1:-1], strict=True)
        if row["verdict"] in ("internal_error", "invalid") or not row["message"]
    }
    assert said == {}
    assert [row["verdict"] for row in (rows[0], rows[-1])] == ["accepted"] * 2, rows
    # All of it is said in sentences, and goes through JSON.
    assert all("custom_kernel" not in row["message"] for row in rows), rows


_GROUP = 14


@pytest.mark.parametrize("start", range(0, len(VALUES) * ROUNDS, _GROUP))
def test_no_value_ends_a_judge(processes: ForkedJudges, start: int) -> None:
    """Whatever a worker says, it has a verdict of its own, and honest neighbours are accepted."""
    pairs = [pair for number in range(ROUNDS) for pair in _pairs(number)]
    _judged(pairs[start : start + _GROUP], start=processes.start)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_no_value_ends_a_judge_on_a_device(number: int) -> None:
    """The same where tensors are on a device, and may be on two."""
    start: Start = emulated_gpu.start
    _judged(_pairs(number + 7)[number % 4 :: 5][:_GROUP], start=start, device="cuda")
