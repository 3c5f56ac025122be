"""A daemon in a process to be sent signals: it says `begun`, `handed`, `stopping`, `cancelled`; its run has a gate."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

SCRIPT = """
import json, signal, sys, threading, time
from runner.base import logs
from runner.daemon.signals import signals
from tests.integration.daemon.rig import Gate, Rig

# To stderr: a log line in the middle of a word would hide it.
logs.configure("json", "info")
rig = Rig(sys.argv[1], **json.loads(sys.argv[2]))
rig.evaluator.script = gate = Gate()

def say_when(event, what):
    threading.Thread(target=lambda: (event.wait(), print(what, flush=True)), daemon=True).start()

def say_when_handed():
    gate.go.wait()
    while not rig.daemon._writer.pending:
        time.sleep(0.001)
    print("handed", flush=True)

threading.Thread(target=say_when_handed, daemon=True).start()
say_when(gate.begun, "begun")
say_when(gate.cancelled, "cancelled")
say_when(rig.control.stop, "stopping")
threading.Thread(target=lambda: (sys.stdin.readline(), gate.go.set()), daemon=True).start()
with signals(dict.fromkeys((signal.SIGTERM, signal.SIGINT), rig.control.hear_signal)):
    rig.start()
    code = rig.join()
rig.close()
sys.exit(code)
"""


class Process:
    """Started at once, with the rig's settings as JSON."""

    def __init__(self, database_url: str, settings: str = "{}") -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, database_url, settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            text=True,
        )

    def expect(self, word: str) -> None:
        """Read its output until it says that word."""
        assert self.child.stdout is not None
        for line in self.child.stdout:
            if line.strip() == word:
                return
        raise AssertionError(f"the daemon ended without saying {word!r}")

    def open_gate(self) -> None:
        """Let its run finish."""
        assert self.child.stdin is not None
        self.child.stdin.write("go\n")
        self.child.stdin.flush()

    def close(self) -> None:
        """Kill it."""
        self.child.kill()
        self.child.wait()
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                pipe.close()
