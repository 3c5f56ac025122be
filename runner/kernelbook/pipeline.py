"""All steps after each other, from a configuration file; what is done already is skipped."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from runner.errors import ConfigError
from runner.kernelbook import best, difficulty, enrich, lengths, prompts, report, upload

from .asking import Endpoint
from .report import StepReport
from .rows import Selection, Source
from .settings import Settings

STEPS: Final = ("filter", "prompts", "best", "lengths", "upload")
JOURNAL: Final = "journal.sqlite"
REPORT: Final = "report.json"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a configuration file says. Every key has the published scripts' value as its default."""

    output: Path = Path("outputs")
    steps: tuple[str, ...] = STEPS
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

    @classmethod
    def load(cls, file: Path) -> Plan:
        """Read a TOML file.

        Raises:
            ConfigError: it cannot be read, or a key or value is unknown; the key is named.
        """
        try:
            found = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"cannot read {file}: {error}") from error
        kinds: Mapping[str, Callable[[Any], Any]] = {
            "output": _path,
            "steps": _steps,
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
        return cls(**made)

    @property
    def files(self) -> Mapping[str, Path]:
        """What each step writes."""
        return {
            "filter": self.output / Path(difficulty.OUTPUT).name,
            "prompts": self.output / Path(prompts.OUTPUT).name,
            "best": self.output / Path(best.OUTPUT).name,
            "lengths": self.output / "lengths.json",
        }

    def endpoint(self, settings: Settings, default_model: str) -> Endpoint:
        """Where the steps ask."""
        return settings.endpoint(model=self.model, default_model=default_model)


def run(
    plan: Plan, settings: Settings, *, told: Callable[[str, int], None], again: bool = False
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
        made = _STEPS[name](plan, settings, partial(told, name))
        kept[name] = {"key": key, **made.to_json(), "cost": _cost(plan, made)}
        report.keep(kept, report_file)
        yield made


def _filter(plan: Plan, settings: Settings, told: Callable[[int], None]) -> StepReport:
    return enrich.run(
        difficulty.Difficulty(threshold=plan.threshold).step(),
        Source(plan.evaluations, token=settings.hub_token),
        selection=Selection(limit=settings.test_limit),
        endpoint=plan.endpoint(settings, difficulty.MODEL),
        files=enrich.Files(output=plan.files["filter"], journal=plan.output / JOURNAL),
        told=told,
    )


def _prompts(plan: Plan, settings: Settings, told: Callable[[int], None]) -> StepReport:
    return enrich.run(
        prompts.step(),
        Source(plan.modules, token=settings.hub_token),
        selection=Selection(limit=settings.test_limit),
        endpoint=plan.endpoint(settings, prompts.MODEL),
        files=enrich.Files(output=plan.files["prompts"], journal=plan.output / JOURNAL),
        told=told,
    )


def _best(plan: Plan, _: Settings, __: Callable[[int], None]) -> StepReport:
    return best.run(plan.files["filter"], plan.files["best"], by_code=plan.by_code)


def _lengths(plan: Plan, settings: Settings, told: Callable[[int], None]) -> StepReport:
    source = Source(str(plan.files["filter"]))
    made, _ = lengths.run(source, Selection(), model=plan.tokenizer, token=settings.hub_token, told=told)
    report.keep({"lengths": made.to_json()}, plan.files["lengths"])
    made.files = [str(plan.files["lengths"])]
    return made


def _upload(plan: Plan, settings: Settings, _: Callable[[int], None]) -> StepReport:
    rows = {"filtered": "filter", "unique": "best", "synthetic": "prompts"}
    whole = StepReport(step="upload")
    for target in upload.TARGETS:
        if rows[target.name] not in plan.steps:
            continue
        made = upload.run(
            target,
            plan.files[rows[target.name]],
            to=plan.to,
            repository=plan.repositories.get(target.name),
            token=settings.hub_token,
            split=plan.split,
            facts={"source": plan.modules if target.name == "synthetic" else plan.evaluations},
        )
        whole.rows_in += made.rows_in
        whole.rows_out += made.rows_out
        whole.found[target.name] = ", ".join(f"{name} {value}" for name, value in made.found.items())
        whole.files += made.files
    return whole


_STEPS: Final[Mapping[str, Callable[[Plan, Settings, Callable[[int], None]], StepReport]]] = {
    "filter": _filter,
    "prompts": _prompts,
    "best": _best,
    "lengths": _lengths,
    "upload": _upload,
}


def _key(plan: Plan, step: str, settings: Settings) -> str:
    """What the step's result depends on."""
    sources: Mapping[str, tuple[str | Path, ...]] = {
        "filter": (plan.evaluations,),
        "prompts": (plan.modules,),
        "best": (plan.files["filter"],),
        "lengths": (plan.files["filter"],),
        "upload": (plan.files["filter"], plan.files["prompts"], plan.files["best"]),
    }
    parameters: Mapping[str, tuple[object, ...]] = {
        "filter": (plan.threshold, plan.endpoint(settings, difficulty.MODEL).model, settings.test_limit),
        "prompts": (plan.endpoint(settings, prompts.MODEL).model, settings.test_limit),
        "best": (plan.by_code,),
        "lengths": (plan.tokenizer,),
        "upload": (plan.split, str(plan.to), sorted(plan.repositories.items())),
    }
    return json.dumps([[_digest(source) for source in sources[step]], parameters[step]])


def _digest(source: str | Path) -> str:
    """Of a file its bytes, of anything else its name."""
    path = Path(source)
    if not path.is_file():
        return str(source)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
    return round((made.account.tokens_in * plan.price_in + made.account.tokens_out * plan.price_out) / 1e6, 4)


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
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a number")  # noqa: TRY004 the caller names the key
    return float(value)


def _split(value: object) -> str:
    if value not in ("group", "row"):
        raise ValueError("group or row")
    return str(value)


def _steps(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or any(name not in STEPS for name in value):
        raise ValueError(f"a list of some of {', '.join(STEPS)}")
    return tuple(name for name in STEPS if name in value)


def _repositories(value: object) -> dict[str, str]:
    names = [target.name for target in upload.TARGETS]
    if not isinstance(value, dict) or any(name not in names or not isinstance(to, str) for name, to in value.items()):
        raise ValueError(f"a table of names at the hub for some of {', '.join(names)}")
    return dict(value)
