"""A submission's rows as text for people: how far it is, what it came to, its cases, its profiles. Pure.

Of secret runs only mode and verdict are here; the database hands out no more.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from runner.base.results import cases, number
from runner.base.units import duration
from runner.extras.shown import figures, words
from runner.store.connection import Row

#: Rows of `meta` and `compilation` that clients may have; never a command with paths of a host.
META: Final = ("stdout", "stderr", "success", "exit_code", "duration")
COMPILATION: Final = ("nvcc_found", "nvcc_version", "success", "stdout", "stderr", "exit_code")
#: Of a run, on its page and in its report.
MOST_CASES: Final = 100
_REPORT_CHARS: Final = 20_000


def picked(value: object, keys: Sequence[str]) -> dict[str, Any] | None:
    """Those keys of an object that clients may have; None for anything else."""
    return {key: value[key] for key in keys if key in value} if isinstance(value, Mapping) else None


def progress(status: Row) -> str:
    """How far a submission is that is not over: a row of `runner.status`."""
    text = str(status["phase"] or status["state"])
    if status["state"] == "queued" and status["position"]:
        text += f", place {status['position']}"
    if status["no_host_since"]:
        text += ", no host serves this GPU type now"
    if status["paused"]:
        text += f", paused: {status['paused']}"
    return text


def headline(submission: Row, status: Row | None, ranking_by: str | None) -> words.Headline | None:
    """What the submission came to; None: it is not over."""
    if not submission["done"] or status is None or status["verdict"] is None:
        return None
    runs = submission["runs"] or ()
    failed = next((row for row in runs if not row["secret"] and not row["passed"]), None)
    result = {} if failed is None or not isinstance(failed["result"], dict) else failed["result"]
    ran = cases(result, most=MOST_CASES)
    score_s = number(status["score"])
    ranked = next((row for row in runs if row["score"] is not None and number(row["score"]) == score_s), None)
    return words.headline(
        status["verdict"],
        cases=ran,
        announced=int(number(result.get(f"{ran[0].kind}-count")) or 0) if ran else 0,
        secret_failed=any(row["secret"] and not row["passed"] for row in runs),
        score_s=score_s,
        interval=None if ranked is None else figures.interval_of(ranked["result"], ranking_by),
    )


def reports(submission: Row, status: Row | None, *, plain: Callable[[str], str] = str) -> list[str]:
    """A text for people per GPU type. `plain`: makes what a submission says, beside its cases, harmless."""
    runs: Sequence[Row] = submission["runs"] or ()
    texts: list[str] = []
    for gpu in dict.fromkeys(row["gpu_type"] for row in runs):
        mine = [row for row in runs if row["gpu_type"] == gpu]
        passed = all(row["passed"] for row in mine)
        lines = [f"**{gpu} on kernel-runner {'✅ success' if passed else '❌ failure'}**"]
        for row in mine:
            kind = "secret run" if row["secret"] else row["mode"]
            lines.append(f"> {'✅' if row['passed'] else '❌'} {kind}")
        for row in mine:
            if not row["secret"]:
                lines += _cases(row)
        whole = "\n".join(lines)
        text = whole[:_REPORT_CHARS]
        if text != whole:
            text += f"\n{'```' * (text.count('```') % 2)}\nThe rest is left out: the report is too long."
        texts.append(text)
    error = (status or {}).get("error") or submission["error"]
    if error:
        texts.append(f"❌ {plain(error)}")
    return texts or ["❌ no result"]


def _cases(row: Row) -> list[str]:
    heading = f"## {'✅ Passed' if row['passed'] else '❌ Failed'} {row['mode']}:"
    lines: list[str] = []
    for case in cases(row["result"], most=MOST_CASES):
        lines.append(f"{'❔' if case.passed is None else '✅' if case.passed else '❌'} {case.spec}")
        if case.error or case.message:
            lines.append(f"> {case.error or case.message}")
        if case.mean_ns is not None:
            mean, best, worst = map(duration, (case.mean_ns, case.best_ns, case.worst_ns))
            lines.append(f" ⏱ {mean} ⚡ {best} 🐌 {worst}")
    stderr = (picked(row["meta"], META) or {}).get("stderr")
    if not row["passed"] and stderr:
        lines.append(str(stderr)[-2000:])
    return ["", heading, "```", *(line.replace("```", "'''") for line in lines), "```"]


def profile_archive(row: Row, profiles: Sequence[Row]) -> bytes | None:
    """The files of one benchmark's profile as a zip, under the names that KernelBot gives them; None: there is none."""
    begin = f"{row['mode']}."
    files = [file for file in profiles if file["gpu_type"] == row["gpu_type"] and file["name"].startswith(begin)]
    if not files:
        return None
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            rest = str(file["name"]).removeprefix(begin).replace("/", "_").replace("\\", "_")
            archive.writestr(rest if rest.startswith("ncu-details.") else f"profile.{rest}", bytes(file["data"]))
    return target.getvalue()
