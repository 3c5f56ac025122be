"""Rewards: pure functions of stored facts, by name and version. A published version never changes.

Facts are the result of one item as the database keeps it. `reward` gives None where the candidate is not to blame, or
where a fact is not known: an outage, a reference that cannot be used, a speed-up that was not measured. None must be
masked, never trained on as 0.

A speed-up whose interval contains 1 counts as 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from statistics import pstdev
from typing import Any, Final

from runner.base.errors import NotFoundError

Facts = Mapping[str, Any]
#: A reward of the facts; None: a fact is not known.
Reward = Callable[[Facts], float | None]

#: The verdicts that say nothing about the candidate. `invalid` does where the candidate's own text was refused.
_OURS: Final = frozenset({"internal_error", "cancelled"})


def speedup(facts: Facts) -> float | None:
    """How much faster than the baseline a candidate is; 0 if it is not correct, 1 if that is all the interval says.

    None: it is correct, and its time is not known.
    """
    if not correct(facts):
        return 0.0
    value, low, high = facts.get("speedup"), facts.get("speedup_low"), facts.get("speedup_high")
    if value is None:
        return None
    if low is not None and high is not None and low <= 1.0 <= high:
        return 1.0
    return float(value)


def correct(facts: Facts) -> bool:
    """Whether the candidate was accepted. A correct one that was rejected does not count."""
    return facts.get("verdict") == "accepted"


def compiled(facts: Facts) -> bool:
    """Whether the candidate got as far as being built."""
    return facts.get("compiled") is True or correct(facts)


def blames(facts: Facts) -> bool:
    """Whether the result says something about the candidate."""
    if facts.get("verdict") == "invalid":
        return facts.get("stage") == "compile"
    return facts.get("verdict") is not None and facts["verdict"] not in _OURS


def is_custom(facts: Facts) -> bool:
    """Whether the candidate has a kernel of its own: measured where a device was there, else by its text."""
    use = facts.get("kernel_use")
    if isinstance(use, Mapping) and use.get("custom") is not None:
        return bool(use["custom"])
    return "no_custom_kernel" not in (facts.get("flags") or ())


def coverage(facts: Facts) -> float | None:
    """The part of the device time that kernels of the candidate's own take; None where nothing was measured."""
    use = facts.get("kernel_use")
    share = use.get("share") if isinstance(use, Mapping) else None
    return min(1.0, max(0.0, float(share))) if share is not None else None


def reward(name: str, facts: Facts) -> float | None:
    """The reward of that name, e.g. `kevin@1`; a version may be left out where there is one. It is finite, or None.

    Raises:
        NotFoundError: there is no such reward, or it has several versions and the name says none.
    """
    function = named(name)
    value = function(facts) if blames(facts) else None
    return value if value is None or math.isfinite(value) else None


def named(name: str) -> Reward:
    """The function of a name.

    Raises:
        NotFoundError: there is no such reward, or it has several versions and the name says none: the newest would be
            another formula after an update.
    """
    if name in REWARDS:
        return REWARDS[name]
    versions = sorted(version for version in REWARDS if version.rsplit("@", 1)[0] == name)
    if len(versions) > 1:
        raise NotFoundError(f"reward {name!r} has {len(versions)} versions; name one of {', '.join(versions)}")
    if versions:
        return REWARDS[versions[0]]
    match = re.fullmatch(r"fast_(\d+(?:\.\d+)?)(?:@1)?", name)
    if match:
        return fast(float(match[1]))
    raise NotFoundError(
        f"there is no reward {name!r}; choose from {', '.join(sorted(REWARDS))}, or fast_P@1 for a number P"
    )


def fast(p: float) -> Reward:
    """1 if correct with a speed-up strictly above `p`, else 0: the mean over all samples is fast_p."""

    def compute(facts: Facts) -> float | None:
        if not correct(facts):
            return 0.0
        # A correct candidate is above 0, also where it was not timed.
        ratio = 1.0 if p <= 0 else speedup(facts)
        return None if ratio is None else float(ratio > p)

    return compute


def _of_speedup(formula: Callable[[float], float], *, custom: bool = False) -> Reward:
    """A formula of a correct candidate's speed-up; 0 for others, with `custom` also without a kernel of its own."""

    def compute(facts: Facts) -> float | None:
        if not correct(facts) or (custom and not is_custom(facts)):
            return 0.0
        ratio = speedup(facts)
        return None if ratio is None else formula(ratio)

    return compute


#: Kevin-32B: 0.3 for a correct candidate, plus its speed-up. Turns are the trainer's business: `discounted`.
kevin = _of_speedup(lambda ratio: 0.3 + ratio, custom=True)


def kevin_strict(facts: Facts) -> float | None:
    """Kevin-32B with all of its conditions: 0 too for a candidate that calls torch.nn.functional."""
    return 0.0 if "torch_functional" in (facts.get("flags") or ()) else kevin(facts)


def drkernel(facts: Facts) -> float | None:
    """Dr.Kernel: half for correct, half the speed-up up to 3, half the share of its own kernels; 0 for a decoy."""
    if not correct(facts) or not is_custom(facts):
        return 0.0
    ratio = speedup(facts)
    return None if ratio is None else 0.5 + 0.5 * min(ratio, 3.0) + 0.5 * (coverage(facts) or 0.0)


def kernelgym_stepped(facts: Facts) -> float | None:
    """KernelGYM, stepped: -1 error or decoy, -0.5 not built, -0.3 wrong, -0.1 slower, then 0.2 to 1 by speed-up."""
    if not correct(facts):
        if facts.get("verdict") == "wrong_answer":
            return -0.3
        return -0.5 if facts.get("verdict") in ("compile_error", "invalid") else -1.0
    if not is_custom(facts):
        return -1.0
    ratio = speedup(facts)
    if ratio is None:
        return None
    steps = ((3.0, 1.0), (2.0, 0.8), (1.5, 0.6), (1.2, 0.4), (1.0, 0.2))
    return next((value for least, value in steps if ratio >= least), -0.1)


def cuda_agent(facts: Facts) -> float | None:
    """CUDA Agent: -1 wrong, 1 correct, 2 more than 5 % faster than eager, 3 than eager and compile.

    `speedup_compile` is the speed-up over the compiled baseline, added by a caller who has evaluated both.
    """
    if not correct(facts):
        return -1.0
    ratio = speedup(facts)
    if ratio is None:
        return None
    if ratio <= 1.05:
        return 1.0
    other = facts.get("speedup_compile")
    return 3.0 if other is not None and other > 1.05 else 2.0


def cuda_agent_measured(facts: Facts) -> float | None:
    """CUDA Agent, with the compiled baseline that was timed beside the eager one (`further_baselines`).

    A speed-up over it inside its noise band counts as 1. None: that baseline was not timed, and would decide.
    """
    reward = cuda_agent({**facts, "speedup_compile": None})
    if reward != 2.0:
        return reward
    other = (facts.get("baselines") or {}).get("compile")
    if other is None:
        return None
    compiled_speedup = speedup({**other, "verdict": "accepted"})
    return 3.0 if compiled_speedup is not None and compiled_speedup > 1.05 else 2.0


def openenv(facts: Facts) -> float | None:
    """OpenEnv: 0.1 built, 0.3 correct, 0.3 faster, up to 0.3 by the logarithm of the speed-up, all of it at 4."""
    if not correct(facts):
        return 0.1 * compiled(facts)
    ratio = speedup(facts)
    if ratio is None:
        return None
    scaled = min(1.0, max(0.0, math.log2(ratio) / 2)) if ratio > 0 else 0.0
    return 0.4 + 0.3 * (ratio > 1.0) + 0.3 * scaled


def speed_of_light(facts: Facts) -> float | None:
    """SOL: 1 / (1 + (T - T_sol) / (T_b - T_sol)), with T_sol from `sol_ns`, which a caller adds; 0 if not correct."""
    if not correct(facts):
        return 0.0
    bound, base, own = facts.get("sol_ns"), facts.get("reference_ns"), facts.get("candidate_ns")
    if bound is None or base is None or own is None or base <= bound:
        return None
    if speedup(facts) == 1.0:
        own = base
    return float(1.0 / (1.0 + max(0.0, own - bound) / (base - bound)))


def discounted(rewards: Sequence[float | None], factor: float = 0.4) -> list[float | None]:
    """The return of each turn: its reward plus `factor` times the return of the next turn (Kevin-32B).

    None: the reward of this turn or of a later one is None.
    """
    total: float | None = 0.0
    returns = []
    for value in reversed(rewards):
        total = None if value is None or total is None else value + factor * total
        returns.append(total)
    return returns[::-1]


def normalised(rewards: Sequence[float | None]) -> list[float | None]:
    """Each less the mean of its group, by the deviation; None stays None and counts for nothing."""
    numbers = [value for value in rewards if value is not None]
    if not numbers:
        return list(rewards)
    mean = sum(numbers) / len(numbers)
    # Exact: equal rewards deviate by nothing, though their mean is rounded.
    deviation = pstdev(numbers)
    return [None if value is None else (value - mean) / deviation if deviation > 0 else 0.0 for value in rewards]


#: The rewards by name and version. A change of a formula is a new version beside the old one.
REWARDS: Final[Mapping[str, Reward]] = {
    "correct@1": lambda facts: float(correct(facts)),
    # Not clipped.
    "kernelbook@1": speedup,
    "kevin@1": kevin,
    "kevin@2": kevin_strict,
    # kernelbench-tinker: 0.3 for a correct candidate plus what its speed-up is above 1, at most 10.
    "tinker@1": _of_speedup(lambda ratio: min(10.0, 0.3 + max(0.0, ratio - 1.0))),
    "drkernel@1": drkernel,
    # Half for correct, half for a speed-up of at least 1.01.
    "kernelgym-weighted@1": _of_speedup(lambda ratio: 0.5 + 0.5 * (ratio >= 1.01)),
    "kernelgym-stepped@1": kernelgym_stepped,
    "cuda-agent@1": cuda_agent,
    "cuda-agent@2": cuda_agent_measured,
    # Normalised within a group by `normalised`.
    "cuda-l1@1": _of_speedup(lambda ratio: min(1.5, ratio)),
    "openenv@1": openenv,
    "sol@1": speed_of_light,
    **{f"fast_{p:g}@1": fast(p) for p in (0, 0.5, 0.8, 1, 1.5, 2)},
}
