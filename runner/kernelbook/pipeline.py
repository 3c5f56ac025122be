"""All steps after each other, from a configuration file; what is done already is skipped."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from runner.client import Client
from runner.errors import ConfigError, DataError
from runner.kernelbook import best, difficulty, enrich, lengths, prompts, report, score, synthesize, upload
from runner.marks import ENCODING

from .asking import Endpoint
from .report import StepReport
from .rows import Selection, Source
from .settings import Settings

#: Those that run if a file does not say which, and all that it may name.
STEPS: Final = ("filter", "prompts", "best", "lengths", "upload")
KNOWN: Final = ("synthesize", "score", *STEPS)
#: Timed calls of a kernel; see `runner.submit_batch`.
_MOST_CALLS: Final = 1000
JOURNAL: Final = "journal.sqlite"
REPORT: Final = "report.json"
#: Which step writes the rows of each data set.
_UPLOADED: Final = {"filtered": "filter", "unique": "best", "synthetic": "prompts"}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a configuration file says. Every key has the published scripts' value as its default."""

    output: Path = Path("outputs")
    steps: tuple[str, ...] = STEPS
    #: Of step 0: prompts for kernels, and completions where no step of the plan writes them.
    problems: str = prompts.OUTPUT
    completions: str | None = None
    #: Of step 0: where completions are evaluated, under which name, and how often each kernel is timed.
    gpu: str | None = None
    batch: str | None = None
    timed_calls: int = 20
    #: Of step 1, 2 and 5: where rows come from and go to.
    evaluations: str = difficulty.INPUT
    modules: str = prompts.INPUT
    threshold: float = difficulty.THRESHOLD
    model: str | None = None
    tokenizer: str = lengths.MODEL_NAME
    by_code: bool = False
    split: Literal["group", "row"] = "group"
    #: A folder instead of the hub; and the hub's repositories by the names of the data sets.
    to: Path | None = None
    repositories: Mapping[str, str] = field(default_factory=dict)
    #: Money per million tokens, for the report.
    price_in: float | None = None
    price_out: float | None = None
    #: The address of a Ray cluster whose nodes ask and count.
    ray: str | None = None

    @classmethod
    def load(cls, file: Path) -> Plan:
        """Read a TOML file.

        Raises:
            ConfigError: it cannot be read, or a key or value is unknown; the key is named.
        """
        try:
            found = tomllib.loads(file.read_text(encoding=ENCODING))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"cannot read {file}: {error}") from error
        kinds: Mapping[str, Callable[[Any], Any]] = {
            "output": _path,
            "steps": _steps,
            "problems": _text,
            "completions": _text,
            "gpu": _text,
            "batch": _text,
            "timed_calls": _count,
            "evaluations": _text,
            "modules": _text,
            "threshold": _number,
            "model": _text,
            "tokenizer": _text,
            "by_code": _flag,
            "split": _split,
            "to": _path,
            "repositories": _repositories,
            "price_in": _number,
            "price_out": _number,
            "ray": _text,
        }
        unknown = sorted(found.keys() - kinds.keys())
        if unknown:
            raise ConfigError(f"{file}: unknown key {unknown[0]}; known are {', '.join(kinds)}")
        made = {}
        for name, value in found.items():
            try:
                made[name] = kinds[name](value)
            except ValueError as error:
                raise ConfigError(f"{file}: {name} is {value!r}, expected {error}") from None
        plan = cls(**made)
        if "score" in plan.steps and plan.gpu is None:
            raise ConfigError(f"{file}: step score needs gpu, the GPU type on which completions are evaluated")
        for given, writer in (("completions", "synthesize"), ("evaluations", "score")):
            if given in found and writer in plan.steps:
                raise ConfigError(f"{file}: {given} is what step {writer} writes; leave one of the two out")
        return plan

    @property
    def scored_from(self) -> str:
        """Where step 0 finds completions."""
        return str(self.files["synthesize"]) if self.completions is None else self.completions

    @property
    def rated_from(self) -> str:
        """Where step 1 finds evaluations."""
        return str(self.files["score"]) if "score" in self.steps else self.evaluations

    @property
    def files(self) -> Mapping[str, Path]:
        """What each step writes."""
        return {
            "synthesize": self.output / Path(synthesize.OUTPUT).name,
            "score": self.output / Path(score.OUTPUT).name,
            "filter": self.output / Path(difficulty.OUTPUT).name,
            "prompts": self.output / Path(prompts.OUTPUT).name,
            "best": self.output / Path(best.OUTPUT).name,
            "lengths": self.output / "lengths.json",
        }

    @property
    def targets(self) -> Sequence[upload.Target]:
        """The data sets that are uploaded: those that a step of the plan writes, or wrote in an earlier run."""
        return [
            target
            for target in upload.TARGETS
            if _UPLOADED[target.name] in self.steps or self.files[_UPLOADED[target.name]].exists()
        ]

    def endpoint(self, settings: Settings, default_model: str) -> Endpoint:
        """Where the steps ask."""
        return settings.endpoint(model=self.model, default_model=default_model)


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What steps need beside the plan."""

    settings: Settings
    #: A client of the queue, for step 0.
    client: Callable[[Plan], AbstractContextManager[Client]]
    told: Callable[[int], None]


def run(
    plan: Plan,
    settings: Settings,
    *,
    client: Callable[[Plan], AbstractContextManager[Client]],
    told: Callable[[str, int], None],
    again: bool = False,
) -> Iterator[StepReport]:
    """Run the steps that are not done, one report each; a step that is done gives its report of then.

    A step is done if its last run was complete, with the same parameters over the same rows. The report file in the
    output folder says so, and is renewed after each step.

    Raises:
        Whatever a step raises. The steps before it are done.
    """
    report_file = plan.output / REPORT
    kept = _kept(report_file)
    for name in plan.steps:
        key = _key(plan, name, settings)
        known = kept.get(name)
        if known is not None and not again and known.get("key") == key and known["complete"] and _stands(known):
            yield StepReport(
                step=name, rows_in=known["rows_in"], rows_out=known["rows_out"], found={"done before": "skipped"}
            )
            continue
        made = _STEPS[name](plan, Surroundings(settings=settings, client=client, told=partial(told, name)))
        kept[name] = {"key": key, **made.to_json(), "cost": _cost(plan, made)}
        report.keep(kept, report_file)
        yield made


def _ask(plan: Plan, around: Surroundings, step: enrich.Step, source: str, model: str) -> StepReport:
    return enrich.run(
        step,
        Source(source, token=around.settings.hub_token),
        selection=Selection(limit=around.settings.test_limit),
        endpoint=plan.endpoint(around.settings, model),
        files=enrich.Files(output=plan.files[step.name], journal=plan.output / JOURNAL),
        ray=plan.ray,
        told=around.told,
    )


def _synthesize(plan: Plan, around: Surroundings) -> StepReport:
    return _ask(plan, around, synthesize.step(), plan.problems, prompts.MODEL)


def _score(plan: Plan, around: Surroundings) -> StepReport:
    with around.client(plan) as client:
        return score.run(
            Source(plan.scored_from, token=around.settings.hub_token),
            client,
            device=plan.gpu or "",
            selection=Selection(limit=around.settings.test_limit),
            output=plan.files["score"],
            told=around.told,
        )


def _filter(plan: Plan, around: Surroundings) -> StepReport:
    step = difficulty.Difficulty(threshold=plan.threshold).step()
    return _ask(plan, around, step, plan.rated_from, difficulty.MODEL)


def _prompts(plan: Plan, around: Surroundings) -> StepReport:
    return _ask(plan, around, prompts.step(), plan.modules, prompts.MODEL)


def _best(plan: Plan, _: Surroundings) -> StepReport:
    return best.run(plan.files["filter"], plan.files["best"], by_code=plan.by_code)


def _lengths(plan: Plan, around: Surroundings) -> StepReport:
    source = Source(str(plan.files["filter"]))
    made, found = lengths.run(
        source, Selection(), model=plan.tokenizer, token=around.settings.hub_token, ray=plan.ray, told=around.told
    )
    histogram = plan.files["lengths"].with_suffix(".png")
    lengths.draw(found, histogram, title=source.name)
    report.keep({"lengths": made.to_json()}, plan.files["lengths"])
    made.files = [str(plan.files["lengths"]), str(histogram)]
    return made


def _upload(plan: Plan, around: Surroundings) -> StepReport:
    if not plan.targets:
        raise DataError(f"{plan.output} has no rows to upload; run the steps that write them first")
    whole = StepReport(step="upload")
    for target in plan.targets:
        made = upload.run(
            target,
            plan.files[_UPLOADED[target.name]],
            to=plan.to,
            repository=plan.repositories.get(target.name),
            token=around.settings.hub_token,
            split=plan.split,
        )
        whole.rows_in += made.rows_in
        whole.rows_out += made.rows_out
        whole.found[target.name] = ", ".join(f"{name} {value}" for name, value in made.found.items())
        whole.files += made.files
    return whole


_STEPS: Final[Mapping[str, Callable[[Plan, Surroundings], StepReport]]] = {
    "synthesize": _synthesize,
    "score": _score,
    "filter": _filter,
    "prompts": _prompts,
    "best": _best,
    "lengths": _lengths,
    "upload": _upload,
}


def _key(plan: Plan, step: str, settings: Settings) -> str:
    """What the step's result depends on."""
    sources: Mapping[str, tuple[str | Path, ...]] = {
        "synthesize": (plan.problems,),
        "score": (plan.scored_from,),
        "filter": (plan.rated_from,),
        "prompts": (plan.modules,),
        "best": (plan.files["filter"],),
        "lengths": (plan.files["filter"],),
        "upload": tuple(plan.files[_UPLOADED[target.name]] for target in plan.targets),
    }
    parameters: Mapping[str, tuple[object, ...]] = {
        "synthesize": (plan.endpoint(settings, prompts.MODEL).model, settings.test_limit),
        "score": (plan.gpu, plan.timed_calls, settings.test_limit),
        "filter": (plan.threshold, plan.endpoint(settings, difficulty.MODEL).model, settings.test_limit),
        "prompts": (plan.endpoint(settings, prompts.MODEL).model, settings.test_limit),
        "best": (plan.by_code,),
        "lengths": (plan.tokenizer,),
        "upload": (plan.split, str(plan.to), sorted(plan.repositories.items())),
    }
    return json.dumps([[_digest(str(source), settings) for source in sources[step]], parameters[step]])


def _digest(name: str, settings: Settings) -> str:
    """Of files their bytes, of a hub's data set its name and commit."""
    try:
        source = Source(name, token=settings.hub_token)
    except DataError:
        # The step says so, if it needs it.
        return "nothing"
    if not Path(name).exists():
        return source.name
    found = hashlib.sha256()
    for path in source.files:
        with path.open("rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()


def _stands(known: Mapping[str, Any]) -> bool:
    return all(Path(name).exists() for name in known["files"])


def _kept(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} is no report of an earlier run: {error}; move it away") from error
    return found if isinstance(found, dict) else {}


def _cost(plan: Plan, made: StepReport) -> float | None:
    if made.account is None or plan.price_in is None or plan.price_out is None:
        return None
    account = made.account
    return round((account.all_tokens_in * plan.price_in + account.all_tokens_out * plan.price_out) / 1e6, 6)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("text")
    return value


def _path(value: object) -> Path:
    return Path(_text(value))


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")  # noqa: TRY004 the caller names the key
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("a number")
    return float(value)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_CALLS:
        raise ValueError(f"a number from 1 to {_MOST_CALLS}")
    return value


def _split(value: object) -> str:
    if value not in ("group", "row"):
        raise ValueError("group or row")
    return str(value)


def _steps(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or any(name not in KNOWN for name in value):
        raise ValueError(f"a list of some of {', '.join(KNOWN)}")
    return tuple(name for name in KNOWN if name in value)


def _repositories(value: object) -> dict[str, str]:
    names = [target.name for target in upload.TARGETS]
    if not isinstance(value, dict) or any(name not in names or not isinstance(to, str) for name, to in value.items()):
        raise ValueError(f"a table of names at the hub for some of {', '.join(names)}")
    return dict(value)
