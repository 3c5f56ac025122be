"""Makes answers of the gateway's JSON. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from runner.base import units
from runner.base.results import number
from runner.extras.mcp.answers import (
    Board,
    BoardDetails,
    Case,
    Comparison,
    Difference,
    Failure,
    File,
    GpuType,
    Mine,
    Place,
    Result,
    Run,
    Text,
    Timed,
)
from runner.extras.shown.words import TIMINGS

Json = Mapping[str, Any]
#: Characters of a part of a file, of a description, and of a template.
PART: Final = 8000
_DESCRIPTION: Final = 6000
_TEMPLATE: Final = 8000
#: Characters of a message, of what was printed, and of a case's arguments.
_MESSAGE: Final = 700
_OUTPUT: Final = 1000
_ARGUMENTS: Final = 200
#: Of a run: failures, differences of one, and timed cases.
_FAILURES: Final = 2
_DIFFERENCES: Final = 4
_TIMES: Final = 20
_TESTS: Final = 20
_LEADERS: Final = 3
_PYTHON: Final = "Python"
#: Names of what of a submission can be read.
SOURCE: Final = "source"
PROFILE: Final = "profile/"
_RANKED: Final = "leaderboard"
_REPORT: Final = "report"
_RANKED_BY: Final = {
    "last": "the mean time of the last benchmark",
    "mean": "the mean of the benchmarks' mean times",
    "geom": "the geometric mean of the benchmarks' mean times",
}


def board(row: Json, standings: Iterable[Json]) -> Board:
    """A line of the list."""
    return Board(
        leaderboard=row["name"],
        deadline=_second(row["deadline"]),
        ended=row["over"],
        gpu_types=gpu_types(row["gpus"], {each["gpu_type"]: each for each in standings}),
    )


def gpu_types(names: Iterable[str], standings: Mapping[str, Json]) -> list[GpuType]:
    """The GPU types of a leaderboard."""
    return [
        GpuType(gpu_type=name, ranked_users=standings[name]["entries"], best_time=time_of(standings[name]["best"]))
        if name in standings
        else GpuType(gpu_type=name)
        for name in names
    ]


def board_details(page: Json, task: Json) -> BoardDetails:
    """A leaderboard: its page, and the whole task, which is empty for one by invitation."""
    row, shapes = page["board"], page["shapes"]
    templates = {title: source for title, source in page["sources"] if title != "Reference"}
    # The simplest of several.
    name = _PYTHON if _PYTHON in templates else next(iter(templates), "")
    first = templates.get(name, {"text": "", "whole": True})
    texts = task_texts(task)
    titles = [title for title, _ in page["sources"] if title in templates or not texts]
    tests = [case for case in task.get("tests", ()) if isinstance(case, dict)]
    best_s = page["places"][0]["best"] if page["places"] else None
    standings = {
        name: {"entries": count, "best": best_s if name == page["gpu"] else None}
        for name, count in page["entries"].items()
    }
    return BoardDetails(
        leaderboard=row["name"],
        deadline=_second(row["deadline"]),
        ended=row["over"],
        gpu_types=gpu_types(row["gpus"], standings),
        description=cut(page["description"], _DESCRIPTION),
        ranked_by=_RANKED_BY.get(page["ranking_by"], ""),
        benchmarks=[] if shapes is None else _benchmarks(shapes),
        tests=tests[:_TESTS],
        files=[
            *(File(name=title) for title in titles),
            *(File(name=each, characters=len(text)) for each, text in texts.items()),
        ],
        template=first["text"] if first["whole"] and len(first["text"]) <= _TEMPLATE else "",
        template_name=name,
        leaders=[place(each) for each in page["places"][:_LEADERS]],
        leaders_gpu_type=page["gpu"] if page["places"] else None,
    )


def _benchmarks(shapes: Json) -> list[dict[str, Any]]:
    times = [units.duration(each) for each in shapes["best_ns"]]
    return [
        {**dict(zip(shapes["names"], row, strict=True)), **({"best": times[index]} if times else {})}
        for index, row in enumerate(shapes["rows"])
    ]


def task_texts(task: Json) -> Mapping[str, str]:
    """The texts of a task's files; the submission's own place is none."""
    files = task.get("files")
    pairs = files.items() if isinstance(files, dict) else ()
    return {name: text for name, text in pairs if isinstance(text, str) and text != "@SUBMISSION@"}


def place(row: Json) -> Place:
    """A place of a ranking."""
    interval = number(row["interval"])
    text = f"{time_of(row['score'])}" + ("" if interval is None else f" ± {units.percent(interval)}")
    return Place(
        rank=row["rank"], user=row["user_name"], time=text, submission_id=row["submission_id"], yours=row["own"]
    )


def _second(moment: str) -> str:
    return f"{moment[:19]}Z"


def time_of(score_s: object) -> str | None:
    """A score as a time."""
    value = number(score_s)
    return None if value is None else units.score(value)


def mine(row: Json, state: Json | None) -> Mine:
    """A line of the user's list."""
    verdict = "done" if row["done"] else "waiting"
    if state is not None:
        verdict = state["verdict"] or state["phase"] or state["state"]
    times = {run["gpu_type"]: time for run in row["runs"] or () if (time := time_of(run["score"])) is not None}
    return Mine(
        submission_id=row["id"],
        leaderboard=row["leaderboard_name"],
        file_name=row["file_name"],
        submitted=_second(row["submission_time"]),
        verdict=verdict,
        times=times,
    )


def scores(rows: Iterable[Json], gpu_type: str) -> dict[int, float]:
    """The scores of ranked submissions on a GPU type, in seconds, by id."""
    return {
        row["id"]: score
        for row in rows
        for run in row["runs"] or ()
        if run["gpu_type"] == gpu_type and (score := number(run["score"])) is not None
    }


def result(page: Json, *, url: str) -> Result:
    """A submission: what became of it, or how far it is."""
    submission, status, headline = page["submission"], page["status"] or {}, page["headline"]
    submission_id, over = submission["id"], page["progress"]["done"]
    error = submission["error"] or status.get("error")
    if over:
        text = page["progress"]["text"] if headline is None else headline["text"]
        # Without its places on the page.
        advice = "" if headline is None else headline["advice"].replace(" below", "")
        if any(run["reports"] or run["files"] for run in page["runs"]):
            advice = "Read the profile: read_submission_file."
        elif status.get("verdict") == "accepted" and status.get("score") is not None:
            advice += f" Compare it with your best: compare(submission_id={submission_id})."
    else:
        text = page["progress"]["text"]
        advice = f"Wait on with get_result(submission_id={submission_id}); stop it with cancel."
    return Result(
        submission_id=submission_id,
        leaderboard=submission["leaderboard_name"],
        state="done" if over else "waiting",
        headline=text,
        next=advice,
        verdict=status.get("verdict"),
        time=time_of(status.get("score")),
        measured_by=TIMINGS[timing][1] if (timing := status.get("timing")) in TIMINGS else "",
        does_not_rank=status.get("unranked"),
        error=None if error is None else cut(error.replace("\\n", "\n"), _MESSAGE),
        runs=_runs(page["runs"]),
        secret_run_passed=page["secret"],
        files=submission_files(page),
        page=f"{url.rstrip('/')}/view/{submission_id}",
    )


def submission_files(page: Json) -> list[str]:
    """What of a submission can be read: its source, what it printed, and what a profiler left."""
    names = [SOURCE]
    for run in page["runs"]:
        own = f"{run['gpu']}/{run['mode']}"
        names += [f"{own}/{name}" for name, _, _ in run["outputs"]]
        names += [f"{own}/{_REPORT}"] * bool(run["reports"])
        texts = [file for file in run["files"] if file["name"].endswith((".txt", ".csv", ".json"))]
        names += [f"{PROFILE}{file['gpu_type']}/{file['name']}" for file in texts]
    return names


def printed(page: Json, detail: Json, name: str) -> str:
    """What a run printed, or its profile; `detail`: the record for programs, which has some of it in full."""
    gpu, mode, kind = name.split("/")
    run = next(run for run in page["runs"] if (run["gpu"], run["mode"]) == (gpu, mode))
    if kind == _REPORT:
        return "\n\n".join(run["reports"])
    for row in detail["runs"]:
        if (row["runner"], row["mode"], row["secret"]) == (gpu, mode, False) and "diagnostics" in row:
            own = row["diagnostics"]
            whole = (own["compilation"] or {}).get("stderr") if kind == "compiler" else own.get(kind)
            if whole:
                return str(whole)
    return next(str(text) for title, text, _ in run["outputs"] if title == kind)


def _runs(pages: Iterable[Json]) -> list[Run]:
    """The runs; times that a ranked run shares with its benchmarks stand in the ranked one alone."""
    runs = [_run(run) for run in pages]
    ranked = {run.gpu_type for run in runs if run.mode == _RANKED and run.times}
    return [run for run in runs if run.mode != "benchmark" or run.gpu_type not in ranked]


def _run(run: Json) -> Run:
    cases = [case for case, _ in run["cases"]]
    outputs = {name: text for name, text, _ in run["outputs"]}
    passed = sum(case["passed"] is not False for case in cases)
    more = f", and {run['hidden']} are not shown" if run["hidden"] else ""
    timed = [case for case in cases if case["mean_ns"] is not None]
    return Run(
        mode=run["mode"],
        gpu_type=run["gpu"],
        passed=run["passed"],
        cases=f"{passed} of {len(cases)} passed{more}" if cases else "",
        failures=[_failure(failure) for failure in run["failures"][:_FAILURES]],
        times=[_timed(case) for case in timed[:_TIMES]],
        roofline=run["roofline"],
        stderr_end="" if run["passed"] else outputs.get("stderr", "")[-_OUTPUT:],
        compiler="" if run["passed"] else cut(outputs.get("compiler", ""), _OUTPUT),
    )


def _failure(failure: Json) -> Failure:
    case = failure["case"]
    differences = [
        Difference(**{key: each[key] for key in ("output", "index", "got", "expected", "off_by")})
        for each in failure["differences"][:_DIFFERENCES]
    ]
    return Failure(
        case=f"{case['kind']} {case['index'] + 1}",
        arguments=cut(case["spec"], _ARGUMENTS),
        # The differences say it in less.
        message="" if differences else cut(failure["message"], _MESSAGE),
        differences=differences,
        tolerance=failure["tolerance"],
    )


def _timed(case: Json) -> Timed:
    light = number(case["sol"])
    bound = f", bound by {case['sol_limit']}" if case["sol_limit"] else ""
    return Timed(
        arguments=cut(case["spec"], _ARGUMENTS),
        mean=_mean(case),
        speed_of_light="" if light is None else f"{units.percent(light)}{bound}",
        remarks=", ".join(case["remarks"]),
    )


def _mean(case: Json) -> str:
    interval = case["mean_ci95_ns"]
    return units.spread(case["mean_ns"], None if interval is None else (interval[0], interval[1]))


@dataclass(frozen=True, kw_only=True)
class TimedRun:
    """The timed cases of a submission on a GPU type, by their arguments."""

    submission_id: int
    gpu_type: str
    mode: str
    cases: Mapping[str, Json]


def timed_cases(page: Json, gpu_type: str | None) -> TimedRun | None:
    """The cases of a submission's ranked run, else of its benchmarks; None: it has none."""
    for mode in (_RANKED, "benchmark"):
        for run in page["runs"]:
            cases = {case["spec"]: case for case, _ in run["cases"] if case["mean_ns"] is not None}
            if run["mode"] == mode and cases and gpu_type in (None, run["gpu"]):
                return TimedRun(submission_id=page["submission"]["id"], gpu_type=run["gpu"], mode=mode, cases=cases)
    return None


def comparison(this: TimedRun, other: TimedRun) -> Comparison:
    """Two submissions, case by case."""
    rows = [_compared(spec, this.cases.get(spec), other.cases.get(spec)) for spec in {**this.cases, **other.cases}]
    counts = Counter(row.this_is for row in rows)
    ratios = [row.times_other for row in rows if row.times_other]
    summary = f"Of {len(rows)} cases: {', '.join(f'{word} in {count}' for word, count in counts.items())}."
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        summary += f" Over all it takes {mean:.3g} times the other's time (geometric mean)."
    return Comparison(
        this=this.submission_id,
        other=other.submission_id,
        gpu_type=this.gpu_type,
        summary=summary,
        cases=rows[:_TIMES],
        note="" if this.mode == other.mode else f"This is a {this.mode} run, the other a {other.mode} run.",
    )


def _compared(spec: str, ours: Json | None, theirs: Json | None) -> Case:
    arguments = cut(spec, _ARGUMENTS)
    if ours is None or theirs is None:
        return Case(
            arguments=arguments,
            this=None if ours is None else _mean(ours),
            other=None if theirs is None else _mean(theirs),
            this_is="cannot be told",
        )
    return Case(
        arguments=arguments,
        this=_mean(ours),
        other=_mean(theirs),
        times_other=float(f"{ours['mean_ns'] / theirs['mean_ns']:.4g}") if theirs["mean_ns"] else None,
        this_is=_which(ours, theirs),
    )


def _which(ours: Json, theirs: Json) -> str:
    """Which of two independent means is less: their difference has to leave its own 95 % interval."""
    halves = _half_ns(ours), _half_ns(theirs)
    gap_ns = ours["mean_ns"] - theirs["mean_ns"]
    if halves[0] is None or halves[1] is None or not abs(gap_ns) > math.hypot(halves[0], halves[1]):
        return "cannot be told"
    return "faster" if gap_ns < 0 else "slower"


def _half_ns(case: Json) -> float | None:
    """Half of what a mean may be off: a measured one also by what the judge subtracted for the hand-over."""
    interval, bounds = case["mean_ci95_ns"], case["bounds_ns"] if case["timing"] == "measured" else None
    return None if interval is None else max((pair[1] - pair[0]) / 2 for pair in (interval, bounds) if pair is not None)


def part(text: str, offset: int) -> Text:
    """A part of a text."""
    end = offset + PART
    return Text(text=text[offset:end], characters=len(text), next_offset=end if end < len(text) else None)


def cut(text: str, most: int) -> str:
    """The beginning of a text, with how much is left out."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most} more characters)"
