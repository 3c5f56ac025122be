"""The built-in eval program: KernelBot's protocol on the outside, judge and worker on the inside.

Run as `python eval.py <test|benchmark|leaderboard|profile> <cases file>` in a folder with submission.py, reference.py
and what they import. Result lines go to the descriptor in POPCORN_FD; without one they are printed, so that a task
author sees them. Exit codes: 0 passed, 112 not passed, 113 bad cases file, 2 usage, 1 the harness itself broke.

Under the daemon this file is not run: a task that names it is judged in a container, where judge and worker have two
users. Here both are processes of the caller's, so a submission that wants to cheat could; a note on stderr says so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

EXIT_PASSED = 0
EXIT_USAGE = 2
EXIT_NOT_PASSED = 112
EXIT_BAD_CASES = 113
MODES = ("test", "benchmark", "leaderboard", "profile")
SUBMISSION = "submission.py"
#: The caller has a limit of its own; this one only ends what would never end.
TIMEOUT_S = 3600.0
_MAX_FILE_BYTES = 4 << 20

_PACKAGE = Path(__file__).resolve().parent / "harness"
if _PACKAGE.is_dir():
    sys.path.insert(0, str(_PACKAGE.parents[1]))


def main(arguments: list[str]) -> int:
    """Run one mode over the cases of a file; the exit code."""
    if len(arguments) != 2 or arguments[0] not in MODES:
        _say(f"usage: eval.py {'|'.join(MODES)} CASES_FILE")
        return EXIT_USAGE
    try:
        from tasks.harness.emulate import asked
        from tasks.harness.judge.cases import CaseError, parse_cases
        from tasks.harness.judge.request import JudgeRequest, ModeRequest
        from tasks.harness.local import JudgeFailed, evaluate, lines_of
        from tasks.harness.shared.profilers import Capture
    except ImportError as error:
        _say(
            f"the harness is not here ({error}): expected beside {Path(__file__).name}, or `pip install kernel-runner`"
        )
        return EXIT_USAGE

    mode, cases_file = arguments[0], Path(arguments[1])
    seed = os.environ.get("POPCORN_SEED")
    try:
        lines = [line for line in cases_file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        cases = parse_cases(lines, global_seed=None)
        if not lines:
            raise CaseError("no cases, expected one per line")
        # As many ranks as the first case wants; the judge says what is wrong with the others.
        ranks = cases[0].arguments.get("world_size")
        if ranks is not None and (type(ranks) is not int or ranks < 1):
            raise CaseError(f"line 1: world_size is {ranks!r}, expected a number of ranks")
        global_seed = int(seed) if seed else None
    except (OSError, ValueError) as error:
        _say(f"{cases_file}: {error}")
        return EXIT_BAD_CASES

    folder = Path.cwd()
    files = {path.name: path.read_text(encoding="utf-8-sig") for path in _texts(folder)}
    if SUBMISSION not in files:
        _say(f"{folder / SUBMISSION}: not found; the submission is expected under this name")
        return EXIT_USAGE
    submission = files.pop(SUBMISSION)
    if mode == "profile":
        modes = tuple(
            ModeRequest(name=f"profile.{index}", cases=(line,), timeout_s=TIMEOUT_S) for index, line in enumerate(lines)
        )
    else:
        modes = (ModeRequest(name=mode, cases=tuple(lines), timeout_s=TIMEOUT_S),)
    request = JudgeRequest(
        modes=modes,
        files=files,
        worker_files=tuple(name for name in files if name not in ("reference.py", Path(__file__).name)),
        submission_name=SUBMISSION,
        submission=submission,
        seed=global_seed,
        ranks=ranks,
        device="auto",
        memory_bytes=_memory_bytes(),
        capture=None if asked() else Capture(),
    )
    _say("note: judge and worker share one user here; rank submissions with the daemon only")
    try:
        report = evaluate(request, on_frame=_show)
    except JudgeFailed as error:
        _say(str(error))
        return 1
    if report.author_exit is not None:
        _say(str(report.author_exit))
    lines_by_key = lines_of(*report.steps, count=len(lines) if mode == "profile" else None)
    _write([f"{key}: {value}" for key, value in lines_by_key.items()])
    ended = [] if report.author_exit is None else [1]
    return max((*ended, *(step.exit_code or 0 for step in report.steps)), default=1)


def _texts(folder: Path) -> Iterable[Path]:
    """The task's text files: what reference and submission may import or read."""
    for path in sorted(folder.iterdir()):
        is_text = path.suffix in (".py", ".cu", ".cuh", ".cpp", ".h", ".hpp", ".txt", ".json", ".yml")
        if path.is_file() and is_text and path.stat().st_size <= _MAX_FILE_BYTES:
            yield path


def _memory_bytes() -> int:
    """Half of what is free, for the tensors of one case."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _write(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    descriptor = os.environ.get("POPCORN_FD")
    if descriptor is None:
        sys.stdout.write(text)
        return
    with os.fdopen(int(descriptor), "w", encoding="utf-8") as stream:
        stream.write(text)


def _show(message: Mapping[str, Any]) -> None:
    """Pass on what the submission wrote, and say in a sentence what went wrong."""
    if message["type"] != "step":
        return
    sys.stdout.write(message["stdout"])
    sys.stderr.write(message["stderr"])
    judged = message.get("judged") or {}
    if judged.get("message"):
        _say(f"{judged['verdict']}: {judged['message']}")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
