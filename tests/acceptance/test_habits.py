"""What right submissions do with their process beside their work, and what must not be held against them."""

from __future__ import annotations

import pytest

from runner.base.model import Mode
from runner.task_format import load_folder
from tests.acceptance.judging.asking import asked
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.plugins.live import ROOT

TASK = load_folder(ROOT / "tasks" / "problems" / "vectoradd").task
#: What becomes of stdout or stderr.
STREAMS = {
    "closed": "getattr(sys, name).close()",
    "reconfigured": "getattr(sys, name).reconfigure(encoding='utf-8', errors='replace')",
    "none": "setattr(sys, name, None)",
    "its descriptor closed": "os.close({'stdout': 1, 'stderr': 2}[name])",
    "an object that is no stream": "setattr(sys, name, object())",
    "one whose flush raises": "setattr(sys, name, type('', (), {'flush': lambda self: 1 / 0, 'write': len})())",
    "a text in memory": "setattr(sys, name, io.StringIO())",
    "a closed file": "setattr(sys, name, open(os.devnull, 'w')); getattr(sys, name).close()",
}
_AT_IMPORT = """
import io, os, sys
for name in ("stdout", "stderr"):
    {habit}

def custom_kernel(data):
    return data[0] + data[1]
"""
_IN_THE_CALL = """
import io, os, sys
first = [True]

def custom_kernel(data):
    if first:
        first.clear()
        for name in ("stdout", "stderr"):
            {habit}
    return data[0] + data[1]
"""
PROFILERS = {
    "torch.profiler": "with torch.profiler.profile():",
    "with a schedule": "with torch.profiler.profile(schedule=torch.profiler.schedule(wait=0, warmup=1, active=1)):",
    "autograd's": "with torch.autograd.profiler.profile():",
    "none": "if True:",
}


@pytest.mark.parametrize("source", [_AT_IMPORT, _IN_THE_CALL], ids=["at import", "in the call"])
@pytest.mark.parametrize("habit", STREAMS)
def test_streams_are_its_own_to_close_or_replace(processes: ForkedJudges, habit: str, source: str) -> None:
    """A right submission is accepted; what it has printed may be lost."""
    assert processes.verdict(asked(TASK, source.format(habit=STREAMS[habit]).encode(), Mode.TEST)) == ("accepted", None)


@pytest.mark.parametrize("profiler", PROFILERS)
def test_a_submission_that_profiles_itself_is_profiled(processes: ForkedJudges, profiler: str) -> None:
    """One profiler works at a time; without a trace of ours the run passes all the same."""
    source = f"""
import torch

def custom_kernel(data):
    {PROFILERS[profiler]}
        return data[0] + data[1]
"""
    assert processes.verdict(asked(TASK, source.encode(), Mode.PROFILE)) == ("accepted", None)
