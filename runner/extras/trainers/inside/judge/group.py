"""A group as records: one reference, its settings, 1 to 16 candidates; and the result of one candidate.

Pure, standard library only: the runner reads and checks groups, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

KIND = "module"
#: The phase of a judge's progress that begins when the reference is prepared.
CANDIDATES = "candidates"
MOST_CANDIDATES = 16
MAX_TEXT_BYTES = 1 << 20
_DTYPES = ("float32", "float16", "bfloat16")
BASELINES = ("eager", "compile", "tf32", "graphs")
#: Baselines that only a device has.
DEVICE_BASELINES = ("tf32", "graphs")


class GroupError(ValueError):
    """A group that cannot be read; the message says what was found and what was expected."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the candidates of a group are judged; see docs/trainers.md."""

    #: Correctness inputs.
    inputs: int = 5
    #: Timed calls of each candidate; 0: none is timed.
    timed_calls: int = 20
    #: Seconds for one candidate, all of it.
    timeout_s: float = 60.0
    #: None: by the dtype of each output (`compare`).
    rtol: float | None = None
    atol: float | None = None
    #: Both sides are cast to this; None: they stay as they are.
    precision: str | None = None
    baseline: str = "eager"
    #: Baselines that are timed beside it, once for a group.
    further_baselines: tuple[str, ...] = ()
    require_custom_kernel: bool = False
    separate_containers: bool = False
    #: Whether parameters are shifted in some calls.
    perturb: bool = True

    @classmethod
    def from_message(cls, values: object) -> Settings:
        """Read settings.

        Raises:
            GroupError: an unknown key, or a value out of its range.
        """
        if not isinstance(values, Mapping):
            raise GroupError(f"settings are {type(values).__name__}, expected an object")
        unknown = sorted(set(values) - set(cls.__dataclass_fields__))
        if unknown:
            names = ", ".join(cls.__dataclass_fields__)
            raise GroupError(f"setting {unknown[0]!r} is unknown; known are {names}")
        _check_values(values)
        given = {key: value for key, value in values.items() if value is not None or key == "precision"}
        if "timeout_s" in given:
            given["timeout_s"] = float(given["timeout_s"])
        if "further_baselines" in given:
            given["further_baselines"] = tuple(dict.fromkeys(given["further_baselines"]))
        return cls(**given)


def _check_values(values: Mapping[str, Any]) -> None:
    """Check the ranges of settings."""
    for name, (low, high) in {"inputs": (1, 20), "timed_calls": (0, 1000)}.items():
        if name in values and (type(values[name]) is not int or not low <= values[name] <= high):
            raise GroupError(f"setting {name} is {values[name]!r}, expected a whole number from {low} to {high}")
    for name, least, most in (("timeout_s", 0.1, 3600.0), ("rtol", 0.0, 1.0), ("atol", 0.0, 1e6)):
        value = values.get(name)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is not None and not (number and least <= value <= most):
            raise GroupError(f"setting {name} is {value!r}, expected a number from {least:g} to {most:g}")
    for name, choices in (("precision", (None, *_DTYPES)), ("baseline", BASELINES)):
        if name in values and values[name] not in choices:
            names = ", ".join("null" if choice is None else choice for choice in choices)
            raise GroupError(f"setting {name} is {values[name]!r}, expected one of {names}")
    further = values.get("further_baselines", ())
    if not isinstance(further, Sequence) or isinstance(further, str) or not all(name in BASELINES for name in further):
        raise GroupError(f"setting further_baselines is {further!r}, expected a list of {', '.join(BASELINES)}")
    for name in ("require_custom_kernel", "separate_containers", "perturb"):
        if name in values and type(values[name]) is not bool:
            raise GroupError(f"setting {name} is {values[name]!r}, expected true or false")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One candidate: its number, its text, and the names its class may have."""

    id: int
    code: str
    entry_points: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Group:
    """One reference with its candidates."""

    reference: str
    entry_point: str
    settings: Settings
    candidates: tuple[Candidate, ...]

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Group:
        """Read a group."""
        if message.get("kind") != KIND:
            raise GroupError(f"the group is of kind {message.get('kind')!r}, expected {KIND!r}")
        reference = _text(message, "reference")
        entry_point = message.get("entry_point", "Model")
        if not isinstance(entry_point, str) or not entry_point.isidentifier():
            raise GroupError(f"entry_point is {entry_point!r}, expected the name of a class")
        rows = message.get("candidates")
        if not isinstance(rows, Sequence) or isinstance(rows, str) or not 1 <= len(rows) <= MOST_CANDIDATES:
            raise GroupError(f"candidates are not a list of 1 to {MOST_CANDIDATES}")
        candidates = tuple(_candidate(row, entry_point) for row in rows)
        if len({candidate.id for candidate in candidates}) != len(candidates):
            raise GroupError("two candidates have the same id")
        settings = Settings.from_message(message.get("settings") or {})
        return cls(reference=reference, entry_point=entry_point, settings=settings, candidates=candidates)


def _candidate(row: object, entry_point: str) -> Candidate:
    if not isinstance(row, Mapping) or type(row.get("id")) is not int:
        raise GroupError("a candidate is no object with an id that is a whole number")
    name = row.get("entry_point")
    if name is not None and (not isinstance(name, str) or not name.isidentifier()):
        raise GroupError(f"candidate {row['id']}: entry_point is {name!r}, expected the name of a class")
    # KernelBench's name and KernelBook's.
    names = (name,) if name else tuple(dict.fromkeys(("ModelNew", f"{entry_point}New")))
    return Candidate(id=row["id"], code=_text(row, "code", of=f"candidate {row['id']}: "), entry_points=names)


def _text(row: Mapping[str, Any], name: str, of: str = "") -> str:
    text = row.get(name)
    if not isinstance(text, str):
        raise GroupError(f"{of}{name} is {type(text).__name__}, expected text")
    if len(text.encode("utf-8", "replace")) > MAX_TEXT_BYTES:
        raise GroupError(f"{of}{name} has more than {MAX_TEXT_BYTES} bytes")
    return text


@dataclass(kw_only=True)
class Result:
    """The facts about one candidate; null: not known. The keys are explained in docs/trainers.md."""

    id: int
    verdict: str = "internal_error"
    stage: str = "reference"
    compiled: bool | None = None
    correct: bool | None = None
    kb_correct: bool | None = None
    message: str = ""
    reference_ns: float | None = None
    candidate_ns: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    #: On a device: by its clock alone.
    speedup_device: float | None = None
    #: Mean, deviation, least and most of the times that count, and their number.
    reference_stats: dict[str, float] | None = None
    candidate_stats: dict[str, float] | None = None
    #: By name of a further baseline: its time and the speed-up over it.
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    timing: str | None = None
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    failing_input: int | None = None
    weights: str = "none"
    perturbed: bool = False
    distributions: list[str] = field(default_factory=list)
    mode: str = "train"
    random: bool = False
    tolerance: dict[str, float] = field(default_factory=lambda: {"rtol": 1e-4, "atol": 1e-4})
    degenerate: bool = False
    flags: list[str] = field(default_factory=list)
    kernel_use: dict[str, Any] | None = None
    memory_bytes: int | None = None
    reference_memory_bytes: int | None = None
    reference_cached: bool = False
    device: str | None = None
    software: str | None = None
    build_ms: float | None = None
    eval_ms: float | None = None

    def to_message(self) -> dict[str, Any]:
        """The result as a JSON object: every key, and no number that JSON lacks."""
        return {key: _finite(value) for key, value in asdict(self).items()}


def _finite(value: object) -> object:
    """None for infinities and NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def failed_results(group: Mapping[str, Any], verdict: str, message: str) -> list[dict[str, Any]]:
    """The same failure for every candidate that the group names."""
    rows = group.get("candidates")
    ids = [row["id"] for row in rows if isinstance(row, Mapping) and type(row.get("id")) is int] if rows else []
    return [Result(id=number, verdict=verdict, message=message).to_message() for number in ids]
