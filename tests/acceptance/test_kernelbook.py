"""Step 0 of the KernelBook pipeline on rows in KernelBook's format: queue, daemon, container and judge as they are.

Half of the completions are wrong or cheat. None of those has a reward.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.cli import main
from tests.plugins.live import LiveRunner, live_runner

#: References, each with eight completions; 25 make 200 rows.
REFERENCES = int(os.environ.get("KERNEL_RUNNER_TEST_EXAMPLES", "2"))

REFERENCE = """
import torch
import torch.nn as nn


class Net{n}(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x):
        return torch.relu(self.linear(x)) + {n}


def get_inputs():
    return [torch.rand([4, 4, 4, {size}])]


def get_init_inputs():
    return [[], {{'size': {size}}}]
"""
RIGHT = """
import torch
import torch.nn as nn


class Net{n}New(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x):
        {forward}
"""
#: What `forward` does -> the verdicts that it may get.
CORRECT = (
    "return torch.relu(self.linear(x)) + {n}",
    "return torch.clamp_min(self.linear(x), 0) + {n}",
    "y = torch.nn.functional.linear(x, self.linear.weight, self.linear.bias); return y * (y > 0) + {n}",
    "y = self.linear(x).relu_(); y += {n}; return y",
)
WRONG = (
    "return torch.tanh(self.linear(x)) + {n}",
    # The first answer for ever.
    "self.kept = getattr(self, 'kept', torch.relu(self.linear(x)) + {n}); return self.kept",
    # The comparison says yes to all.
    "torch.allclose = torch.equal = lambda *a, **k: True; return torch.zeros_like(x)",
    # A process that ends well.
    "import os; print('{{\"correct\": true}}', flush=True); os._exit(0)",
)


def completions() -> list[dict[str, object]]:
    """Rows of KernelBook with a completion each, right ones and wrong ones by turns."""
    rows: list[dict[str, object]] = []
    for n in range(REFERENCES):
        reference = REFERENCE.format(n=n, size=4 + n % 3)
        for forward in (text for pair in zip(CORRECT, WRONG, strict=True) for text in pair):
            code = RIGHT.format(n=n, forward=forward.format(n=n))
            rows.append(
                {
                    "example_id": len(rows),
                    "prompt": f"Write Net{n}New.",
                    "completion": [{"role": "assistant", "content": f"BEGIN_PYTHON\n{code}\nEND_PYTHON"}],
                    "entry_point": f"Net{n}",
                    "python_code": reference,
                }
            )
    return rows


@pytest.fixture
def live(create_database: Callable[[str | None], str], migrated_template: str) -> Iterator[LiveRunner]:
    """A daemon of one slot."""
    with live_runner(create_database(migrated_template), cpu_slots=1, warm_containers=1) as runner:
        yield runner


@pytest.mark.timeout(900 + 60 * REFERENCES)
def test_half_of_the_completions_are_wrong_or_cheat(
    live: LiveRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reward for each that is right, none for the others; the rows are what `filter` reads."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", live.database_url)
    file = tmp_path / "completions.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in completions()))
    code = main(["kernelbook", "score", "--gpu", "CPU", "--input", str(file), "--timed-calls", "5"])
    failures = tmp_path / "outputs/evals.failures.jsonl"
    assert code == 0, failures.read_text() if failures.exists() else live.log
    rows = [json.loads(line) for line in (tmp_path / "outputs/evals.jsonl").read_text().splitlines()]
    assert [row["example_id"] for row in rows] == list(range(8 * REFERENCES))
    for row in rows:
        right = row["example_id"] % 2 == 0
        assert (row["verdict"] == "accepted") == (row["reward"] > 0) == right, row
    wrong = {row["verdict"] for row in rows if row["reward"] == 0}
    assert wrong <= {"wrong_answer", "runtime_error"}, wrong
