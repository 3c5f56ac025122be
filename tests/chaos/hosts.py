"""The daemons of the storm as processes: started, killed, frozen, restarted, and gone for certain at the end.

One thread uses a host. A daemon that ends without having been told to, or does not end although told, is noted as a
violation and started again.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.chaos.daemon import HEARS, Spec
from tests.chaos.proxy import Cut, Proxy

_ROOT: Final = Path(__file__).resolve().parents[2]
#: A daemon told to stop has this long: it allows itself a minute, of which 10 s are `drain_timeout_s`.
TERM_S: Final = 90.0


class Host:
    """One daemon, its network and its state directory."""

    def __init__(self, spec: Spec, proxies: Sequence[Proxy]) -> None:
        """`proxies`: all that lies between the daemon and the database."""
        self.spec = spec
        self._proxies = tuple(proxies)
        self.violations: list[str] = []
        #: Times the process was killed: each may lose what its slots had found and not yet stored.
        self.kills = 0
        self._state_dir = Path(spec.state_dir)
        self._state_dir.mkdir(parents=True)
        self._spec_file = self._state_dir / "spec.json"
        spec.write(self._spec_file)
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._frozen = False
        self._told_at_s: float | None = None

    @property
    def name(self) -> str:
        """The host's name."""
        return self.spec.name

    def start(self) -> None:
        """Start the daemon; does not wait until it serves."""
        with (self._state_dir / "daemon.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.daemon", str(self._spec_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=_ROOT,
                start_new_session=True,
            )
        self._started_s = time.monotonic()
        self._frozen = False
        self._told_at_s = None

    def kill(self) -> None:
        """SIGKILL; stays dead until `start`."""
        self._signal(signal.SIGKILL)
        self._reap(30.0)
        self._process = None
        self.kills += 1

    def terminate(self) -> None:
        """SIGTERM; `look` starts it again once it has ended."""
        self._signal(signal.SIGTERM)
        self._told_at_s = time.monotonic()

    def freeze(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)
        self._frozen = True

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)
        self._frozen = False

    def cut(self, how: Cut) -> None:
        """Break the host's network."""
        for proxy in self._proxies:
            proxy.cut(how)

    def heal(self, *, late: bool) -> None:
        """End what `cut` began; see `Proxy.heal`."""
        for proxy in self._proxies:
            proxy.heal(late=late)

    def look(self) -> None:
        """Notice a daemon that has ended, or should have; start it again."""
        if self._process is None:
            return
        code = self._process.poll()
        if code is None:
            if self._told_at_s is not None and time.monotonic() - self._told_at_s > TERM_S:
                self.violations.append(f"{self.name}: told to stop, still there after {TERM_S:.0f} s")
                self.kill()
                self.start()
            return
        if self._told_at_s is None:
            self.violations.append(f"{self.name}: the daemon ended by itself with code {code}")
        else:
            self._check(code)
        self.start()

    def stop(self) -> None:
        """Have the daemon end for good, politely if it can be."""
        if self._process is None or self._process.poll() is not None:
            return
        if self._frozen:
            self.thaw()
        self._signal(signal.SIGTERM)
        try:
            code = self._reap(TERM_S)
        except subprocess.TimeoutExpired:
            self.violations.append(f"{self.name}: told to stop, still there after {TERM_S:.0f} s")
            return
        self._check(code)

    def close(self) -> None:
        """Kill whatever is left of it."""
        if self._process is not None:
            self._process.kill()
            self._reap(30.0)

    def journal(self) -> Iterator[Mapping[str, Any]]:
        """What the evaluator wrote, in order."""
        path = self._state_dir / "journal.jsonl"
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                yield json.loads(line)

    def log(self) -> Iterator[Mapping[str, Any]]:
        """What the daemon logged; a line that is no JSON comes as {"event": line, "level": "raw"}."""
        path = self._state_dir / "daemon.log"
        if path.exists():
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    yield json.loads(line)
                except ValueError:
                    yield {"event": line, "level": "raw"}

    def spooled(self) -> list[Path]:
        """Files that are waiting in the daemon's spool."""
        return sorted(path for path in (self._state_dir / "spool").rglob("*") if path.is_file())

    def _check(self, code: int) -> None:
        """A daemon that was told to stop ends in order, unless it had hardly begun and could not hear yet."""
        age_s = (self._told_at_s or time.monotonic()) - self._started_s
        if code != 0 and not (code == -signal.SIGTERM and not self._hears()):
            self.violations.append(f"{self.name}: told to stop after {age_s:.1f} s, the daemon ended with code {code}")

    def _hears(self) -> bool:
        """Whether the process had got so far that it handles SIGTERM; before, it ends as any program would."""
        path = self._state_dir / HEARS
        return self._process is not None and path.exists() and path.read_text() == str(self._process.pid)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _reap(self, timeout_s: float) -> int:
        return 0 if self._process is None else self._process.wait(timeout_s)
