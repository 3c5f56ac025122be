"""What a group's reference says, found out once for all candidates: modes, randomness, weights, inputs, outputs.

Every fact here is decided before any candidate's code runs.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from runner.extras.trainers.inside.shared.module_values import encode_value
from tasks.harness.judge.snapshots import held
from tasks.harness.judge.stopping import FEWEST
from tasks.harness.shared.generators import SEEDS, seed_all, seed_some, states
from tasks.harness.shared.values import Unsupported, map_tensors, pack, tensors_of

from .compare import (
    DEFAULT_TOLERANCE,
    Tolerance,
    compare,
    default_tolerance,
    in_double,
    kernelbench_allclose,
    kind_of,
)
from .distributions import ORIGINAL, copied, names_for, observe, transformed
from .group import Settings
from .moments import DRAWS, Draws
from .reference_module import InvalidReference, Reference, alike, identical, same_bits
from .weights import State, shifted

_SEEDS = 1 << 31
#: Bytes of expected outputs and inputs that are kept between candidates; others are made again.
_KEPT_BYTES = 256 << 20
#: Draws of the inputs from which their ranges are known.
_RANGE_DRAWS = 3
#: Where a call of the reference takes longer, one draw of them tells which distributions can be used.
_MANY_CALLS_S = 0.2
#: Draws that an output is compared with that may not depend on its inputs.
_FURTHER_DRAWS = 2
#: Part of a candidate's time that a call of the reference may take: preparation and correctness take some thirty.
_CALL_SHARE = 1 / 15
#: A call of the reference that takes no longer is never too slow.
_NOT_SLOW_S = 1.0
#: The part of a candidate's time that its timed calls may take of the judge, for inputs and checks.
_TIMING_SHARE = 0.5
#: Part of a candidate's time that draws of the reference take for all trials.
_DRAWN_SHARE = 0.5
#: Fewest draws for one trial.
_FEWEST_DRAWS = 24
#: What a call takes at most, beside what the second one took.
_ROOM = 2.0
#: Fewer timed calls say nothing.
_FEWEST_CALLS = 5
#: Outputs that are larger than this on average have a tolerance beside which its floor is nothing.
_SMALL = 5e-3
#: Rounding within a module changes its outputs by less than this multiple of what rounding its inputs does.
_AMPLIFIED = 1000.0
DEPENDS_ON_HISTORY = (
    "the reference's output depends on earlier calls by something that is not in its state_dict, or on memory that "
    "nothing has written, so no module can be compared with it"
)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One correctness call."""

    number: int
    distribution: str
    #: Whether it is made with shifted weights, where the candidate takes them.
    perturbed: bool
    in_eval: bool
    #: Of the inputs, and of the generators in the call.
    seed: int
    #: Whether it is made in eval mode with the state that the same call in the mode of construction leaves.
    is_second: bool = False


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the reference does in a trial."""

    args: list[Any]
    output: Any
    #: The tensors of the arguments, after the call.
    after: list[torch.Tensor]


@dataclass(kw_only=True)
class Prepared:
    """Everything about a reference that does not depend on candidates. Its calls may raise InvalidReference."""

    reference: Reference
    settings: Settings
    args: list[Any]
    kwargs: dict[str, Any]
    #: Of the call that a module with lazy parts makes first.
    first_args: list[Any]
    state: State
    shifted_state: State | None
    #: By mode: whether outputs depend on the seed.
    random: bool
    random_in_eval: bool
    #: Whether calls change its state.
    stateful: bool
    mode: str
    distributions: list[str]
    trials: list[Trial]
    tolerance: Tolerance
    #: As the result shows it.
    tolerance_shown: dict[str, float]
    #: By mode: the generators that a call uses, whatever that does to its output.
    generators: tuple[str, ...] = ()
    generators_in_eval: tuple[str, ...] = ()
    #: Of timed calls: those that are handed over as the original is.
    timed_distributions: tuple[str, ...] = (ORIGINAL,)
    degenerate: bool = False
    #: What its inputs and one call take in the judge.
    call_s: float = 0.0
    _kept: dict[tuple[int, bool], Expected] = field(default_factory=dict)
    _kept_bytes: int = 0
    ranges: list[Any] = field(default_factory=list)
    _draws: dict[tuple[int, bool], Draws] = field(default_factory=dict)

    @property
    def timed_calls(self) -> int:
        """Timed calls of a candidate: fewer than asked for where each takes the judge long; of one nothing is known."""
        asked = self.settings.timed_calls and max(self.settings.timed_calls, FEWEST)
        most = math.floor(_TIMING_SHARE * self.settings.timeout_s / self.call_s) if self.call_s else math.inf
        return int(min(asked, max(most, _FEWEST_CALLS)))

    def used_generators(self, *, in_eval: bool) -> tuple[str, ...]:
        """The generators that are seeded before a call."""
        return self.generators_in_eval if in_eval else self.generators

    def timed_inputs(self) -> Callable[[int], list[Any]]:
        """Makes inputs of a row of timed calls by their seeds. The distribution of each is secret, all occur as often.

        So times of two rows compare, and no timed call asks for less than a correctness call does.
        """
        deck: list[str] = []

        def inputs(seed: int) -> list[Any]:
            if not deck:
                deck.extend(self.timed_distributions)
                secrets.SystemRandom().shuffle(deck)
            args: list[Any] = transformed(self.reference.inputs(seed), deck.pop(), self.ranges)
            return args

        return inputs

    def keep_original(self) -> bool:
        """Leave out all other distributions: the reference fails on some of their inputs. False: there are none."""
        has_others = len(self.distributions) > 1
        self.distributions = [ORIGINAL]
        self._kept.clear()
        self._kept_bytes = 0
        return self.time_original() or has_others

    def time_original(self) -> bool:
        """As `keep_original`, for timed calls alone."""
        has_others = len(self.timed_distributions) > 1
        self.timed_distributions = (ORIGINAL,)
        return has_others

    def expected(self, trial: Trial, *, perturbed: bool) -> Expected:
        """What the reference does in a trial, from its untouched state."""
        outcome = self._kept.get((trial.number, perturbed))
        if outcome is not None:
            return outcome
        args = transformed(self.reference.inputs(trial.seed), trial.distribution, self.ranges)
        self.enter(perturbed=perturbed, in_eval=trial.in_eval)
        if trial.is_second:
            self.reference.set_eval(on=False)
            self.reference.run(args, trial.seed)
            self.reference.set_eval(on=True)
        output, after = self.reference.run(args, trial.seed)
        outcome = Expected(args=args, output=output, after=after)
        nbytes = sum(item.nbytes for item in (*tensors_of(args), *tensors_of(output), *after))
        if self._kept_bytes + nbytes <= _KEPT_BYTES:
            self._kept_bytes += nbytes
            self._kept[trial.number, perturbed] = outcome
        return outcome

    def measure_call(self) -> None:
        """Measure once more what inputs and a call take: what ran beside the first time has ended."""
        self.enter(perturbed=False, in_eval=self.mode == "eval")
        self.call_s = min(self.call_s, _measured_call(self.reference, _fresh(), _fresh())[1])

    def enter(self, *, perturbed: bool, in_eval: bool) -> None:
        """Give the judge's module its weights and its mode."""
        self.reference.load((self.shifted_state if perturbed else None) or self.state)
        self.reference.set_eval(on=in_eval)

    def depends_on_history(self, args: list[Any], seed: int | None, *, perturbed: bool, in_eval: bool) -> bool:
        """Whether a new module gives another output than this one, which has been called before."""
        new = self.reference.anew()
        new.construct()
        outputs = []
        for reference in (self.reference, new):
            reference.load((self.shifted_state if perturbed else None) or self.state)
            reference.set_eval(on=in_eval)
            outputs.append(reference.run(args, seed)[0])
        return compare(outputs[0], outputs[1], self.tolerance).problem is not None

    def draws(self, trial: Trial, *, perturbed: bool, all_of_them: bool) -> Draws:
        """Outputs of the reference for a trial's inputs and weights, under several seeds; fewer of slow ones."""
        drawn = self._draws.setdefault((trial.number, perturbed), Draws())
        most = _DRAWN_SHARE * self.settings.timeout_s / max(self.call_s * len(self.trials), 1e-9)
        missing = (DRAWS if all_of_them else round(min(max(most, _FEWEST_DRAWS), DRAWS))) - len(drawn)
        if missing > 0:
            args = self.expected(trial, perturbed=perturbed).args
            self.enter(perturbed=perturbed, in_eval=trial.in_eval)
            for _ in range(missing):
                drawn.add(self.reference.run(args, secrets.randbelow(_SEEDS))[0])
        return drawn


def prepare(
    reference: Reference, settings: Settings, *, memory_bytes: int, await_others: Callable[[], None] = lambda: None
) -> Prepared:
    """Make a reference's module and find out how it behaves.

    `await_others`: waits until what runs beside this has ended. It is asked before a reference counts as too slow.

    Raises:
        InvalidReference: it cannot be used; the message says why.
    """
    args, kwargs = reference.init_inputs()
    reference.construct()
    state = reference.state()
    seed, other = _fresh(), _fresh()
    inputs = reference.inputs(seed)
    require_fit(inputs, state, None, memory_bytes)
    first, _ = reference.run(inputs, other)
    _require_readable(first)
    require_fit(inputs, state, first, memory_bytes)
    second, call_s = _measured_call(reference, seed, other)
    if not _is_quick(call_s, settings.timeout_s):
        await_others()
        call_s = min(call_s, _measured_call(reference, seed, other)[1])
    _require_quick(call_s, settings.timeout_s)
    repeats = alike(first, second)
    after = reference.state()
    # A call may have added entries, and taken some away.
    stateful = any(name not in after or not same_bits(after[name], item) for name, item in state.items())
    reference.load(state)
    mode, only_eval = ("both" if reference.made_in_train_mode and reference.is_module else "eval"), False
    if not reference.is_module:
        mode = "train"
    if not repeats:
        reference.set_eval(on=True)
        first, second = (reference.run(inputs, other)[0] for _ in range(2))
        if not reference.is_module or not alike(first, second):
            raise InvalidReference(
                "the reference's output depends on earlier calls or on memory that nothing has written, or it gives "
                "different outputs for the same inputs under the same seed"
            )
        mode, only_eval = "eval", True
    _require_finite(first)
    random, generators = (False, ()) if only_eval else _randomness(reference, inputs, first, second, seed=other)
    reference.load(state)
    reference.set_eval(on=True)
    in_eval = [reference.run(inputs, each)[0] for each in (other, other)]
    random_in_eval, generators_in_eval = _randomness(reference, inputs, *in_eval, seed=other)
    reference.set_eval(on=False)
    prepared = Prepared(
        reference=reference,
        settings=settings,
        args=args,
        kwargs=kwargs,
        first_args=reference.first_args(),
        state=state,
        shifted_state=None,
        random=random,
        random_in_eval=random_in_eval,
        generators=generators,
        generators_in_eval=generators_in_eval,
        call_s=call_s,
        stateful=stateful,
        mode=mode,
        distributions=[],
        trials=[],
        tolerance=Tolerance(rtol=settings.rtol, atol=settings.atol),
        tolerance_shown=_shown_tolerance(first, settings),
    )
    draws = [inputs, *(reference.inputs(_fresh()) for _ in range(_RANGE_DRAWS - 1))]
    prepared.ranges = observe(draws)
    prepared.distributions = _usable(prepared, draws, in_eval=only_eval)
    prepared.timed_distributions = _timeable(prepared, draws)
    prepared.shifted_state = _usable_shift(prepared, inputs, in_eval=only_eval) if settings.perturb else None
    changes = _expect(prepared, only_eval=only_eval)
    # Where nothing changes, nothing is known.
    prepared.tolerance = replace(prepared.tolerance, floor=_AMPLIFIED * max(changes) or math.inf)
    first_trial = prepared.trials[0]
    args = prepared.expected(first_trial, perturbed=False).args
    if prepared.depends_on_history(args, first_trial.seed, perturbed=False, in_eval=first_trial.in_eval):
        raise InvalidReference(DEPENDS_ON_HISTORY)
    return prepared


def _expect(prepared: Prepared, *, only_eval: bool) -> list[float]:
    """Plan the trials and work out what they expect, before a candidate lives, as most need it; `_change` of each."""
    prepared.trials = list(_plan(prepared, only_eval=only_eval))
    try:
        prepared.degenerate = _is_degenerate(prepared)
        return [_change(prepared, trial) for trial in prepared.trials]
    except InvalidReference:
        if not prepared.keep_original():
            raise
    return _expect(prepared, only_eval=only_eval)


def _randomness(
    reference: Reference, inputs: list[Any], first: object, second: object, *, seed: int
) -> tuple[bool, tuple[str, ...]]:
    """Whether outputs depend on the seed, and the generators that a call uses. Two outputs of one seed are known."""
    other, _ = reference.run(inputs, _fresh())
    # What is not repeatable to the bit differs by its rounding.
    random = not (identical if identical(first, second) else alike)(first, other)
    seed_all(seed)
    before = states()
    reference.run(inputs, seed)
    used = tuple(name for name, state in states().items() if state != before.get(name))
    if random:
        seed_all(_fresh())
        seed_some(used, seed)
        if not alike(first, reference.run(inputs, None)[0]):
            # It uses one that it puts back, or reads its state alone.
            used = tuple(SEEDS)
    return random, used


def _fresh() -> int:
    return secrets.randbelow(_SEEDS)


def _plan(prepared: Prepared, *, only_eval: bool) -> Iterator[Trial]:
    """The correctness calls: first what KernelBench would ask, then other weights, distributions and eval mode."""
    names, count = prepared.distributions, prepared.settings.inputs
    as_made = [
        (ORIGINAL if index < 2 else names[(index - 1) % len(names)], index % 2 == 1, only_eval)
        for index in range(count)
    ]
    if prepared.mode == "both":
        # What eval mode does beside.
        as_made += [(ORIGINAL, count > 1, True), *([(names[-1], False, True)] if count > 1 else [])]
    for number, (name, perturbed, in_eval_mode) in enumerate(as_made):
        trial = Trial(number=number, distribution=name, perturbed=perturbed, in_eval=in_eval_mode, seed=_fresh())
        yield trial
        is_random = prepared.random or prepared.random_in_eval
        if not number and prepared.mode == "both" and prepared.stateful and not is_random:
            # The state that a call leaves shows in what comes after it.
            yield replace(trial, number=len(as_made), in_eval=True, is_second=True)


def _usable(prepared: Prepared, draws: list[list[Any]], *, in_eval: bool) -> list[str]:
    """The distributions on which the reference gives finite numbers, with each of these draws."""
    names = [ORIGINAL]
    tried = draws if prepared.call_s <= _MANY_CALLS_S else draws[:1]
    for name in names_for(draws)[1:]:
        prepared.enter(perturbed=False, in_eval=in_eval)
        if all(_is_sound(prepared.reference, transformed(draw, name, prepared.ranges)) for draw in tried):
            names.append(name)
    prepared.enter(perturbed=False, in_eval=in_eval)
    return names


def _timeable(prepared: Prepared, draws: list[list[Any]]) -> tuple[str, ...]:
    """The distributions whose tensors lie in memory as those of the original do, so that times compare.

    A reference that fails on one of them may fail on another later, in a call of a candidate. So its timed calls have
    plain inputs.
    """
    if prepared.distributions != names_for(draws):
        return (ORIGINAL,)

    def handed_over(name: str) -> object:
        packed = pack(encode_value(transformed(draws[0], name, prepared.ranges)))
        return packed.tree, packed.sizes

    as_it_is = handed_over(ORIGINAL)
    return tuple(name for name in prepared.distributions if handed_over(name) == as_it_is)


def _usable_shift(prepared: Prepared, inputs: list[Any], *, in_eval: bool) -> State | None:
    """Shifted weights with which the reference gives finite numbers; None where there are none."""
    reference, parameters = prepared.reference, prepared.reference.parameters()
    reference.load(shifted(prepared.state, parameters, torch.Generator().manual_seed(_fresh())))
    # Entries that share their memory now have the values of the last one, and copies of a module's own still their own.
    moved = {**prepared.state, **{name: item for name, item in reference.state().items() if name in prepared.state}}
    if all(same_bits(item, prepared.state[name]) for name, item in moved.items()):
        return None
    modes = (True, False) if prepared.mode == "both" else (in_eval,)
    sound = True
    for mode in modes:
        reference.load(moved)
        reference.set_eval(on=mode)
        sound = sound and _is_sound(reference, inputs)
    prepared.enter(perturbed=False, in_eval=in_eval)
    return moved if sound else None


def _is_sound(reference: Reference, args: list[Any]) -> bool:
    try:
        output, _ = reference.run(args, 1)
        _require_finite(output)
    except InvalidReference:
        return False
    return True


def _is_degenerate(prepared: Prepared) -> bool:
    """Whether an output that does not depend on the inputs is right: a constant, or zeros."""
    trial = prepared.trials[0]
    first = prepared.expected(trial, perturbed=False).output
    if not tensors_of(first):
        return True
    zeros = [torch.zeros_like(item) for item in tensors_of(first)]
    if compare(tensors_of(first), zeros, prepared.tolerance).problem is None:
        return True
    # Of plain get_inputs alone, where a constant may be right though other distributions tell it apart.
    for _ in range(_FURTHER_DRAWS):
        prepared.enter(perturbed=False, in_eval=trial.in_eval)
        other, _ = prepared.reference.run(prepared.reference.inputs(_fresh()), trial.seed)
        if compare(first, other, prepared.tolerance).problem is not None:
            return False
    return True


def _change(prepared: Prepared, trial: Trial) -> float:
    """What steps of the inputs change in small outputs of a trial. Infinity: the usual floor of the tolerance is right.

    Those of a softmax over many elements are hardly above the usual floor, or below it, and no rounding noise.
    """
    perturbed = trial.perturbed and prepared.shifted_state is not None
    expected = prepared.expected(trial, perturbed=perturbed)
    ones = tensors_of(expected.output)
    if prepared.degenerate or prepared.random or prepared.random_in_eval:
        return math.inf
    # Other dtypes keep the usual floor.
    if any(item.dtype != torch.float32 for item in ones):
        return math.inf
    if trial.is_second or not any(float(item.abs().mean()) < _SMALL for item in ones):
        return 0.0
    prepared.enter(perturbed=perturbed, in_eval=trial.in_eval)
    try:
        others = tensors_of(prepared.reference.run(map_tensors(expected.args, _one_step_off), trial.seed)[0])
    except InvalidReference:
        return math.inf
    if list(map(kind_of, ones)) != list(map(kind_of, others)):
        return math.inf
    return max((_distance(one, other) for one, other in zip(ones, others, strict=True) if one.numel()), default=0.0)


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """The root of the mean squared difference of their elements."""
    pairs = zip(in_double(one), in_double(other), strict=True)
    return math.sqrt(sum(float((mine - its).square().sum()) for mine, its in pairs) / one.numel())


def _one_step_off(item: torch.Tensor) -> torch.Tensor:
    """Numbers of float32 a step larger or smaller, at random."""
    if item.dtype != torch.float32 or item.layout is not torch.strided:
        return item
    return item * (1 + torch.finfo(item.dtype).eps * torch.randn_like(item).sign())


def require_fit(inputs: list[Any], state: State, output: object, memory_bytes: int) -> None:
    """Require room for weights and a call: its inputs twice, its output and the inputs that it leaves three times."""
    input_bytes, output_bytes = (sum(item.nbytes for item in tensors_of(value)) for value in (inputs, output))
    needed = held(input_bytes, input_bytes + output_bytes)
    own = sum(item.nbytes for item in state.values())
    if max(needed, 3 * own) > memory_bytes:
        raise InvalidReference(
            f"its inputs have {input_bytes} bytes, its outputs {output_bytes} and its parameters {own}: judging it "
            f"holds {needed} bytes (5 times the inputs, 3 times the outputs) and {3 * own} (3 times the parameters), "
            f"a group may hold {memory_bytes}"
        )


def _measured_call(reference: Reference, seed: int, other: int) -> tuple[object, float]:
    """A call's output, and the seconds that it takes with its inputs; also sets what is usual of the reference."""
    began_ns = time.monotonic_ns()
    output, _ = reference.run(reference.inputs(seed), other)
    took_ns = time.monotonic_ns() - began_ns
    alike(output, output)
    reference.usual_ns = round(_ROOM * (time.monotonic_ns() - began_ns))
    return output, took_ns / 1e9


def _is_quick(call_s: float, timeout_s: float) -> bool:
    return call_s <= max(timeout_s * _CALL_SHARE, _NOT_SLOW_S)


def _require_quick(call_s: float, timeout_s: float) -> None:
    if not _is_quick(call_s, timeout_s):
        raise InvalidReference(
            f"the reference is too slow for timeout_s {timeout_s:g}: its inputs and one call take {call_s:.1f} s, and "
            f"judging a candidate takes many such calls; expected a timeout_s of {math.ceil(call_s / _CALL_SHARE)}"
        )


def _require_readable(output: object) -> None:
    try:
        pack(copied(output))
        compare(output, output, Tolerance())
        kernelbench_allclose(output, output, Tolerance())
    except (Unsupported, RuntimeError, TypeError) as error:
        raise InvalidReference(f"its output cannot be compared: {error}") from error


def _require_finite(output: object) -> None:
    for item in tensors_of(output):
        if not (item.is_floating_point() or item.is_complex()) or not item.numel():
            continue
        finite = False
        for part in in_double(item):
            if bool(part.isnan().any()):
                raise InvalidReference("its output holds NaN")
            finite = finite or bool(part.isfinite().any())
        if not finite:
            raise InvalidReference("its output holds no finite number")


def _shown_tolerance(output: object, settings: Settings) -> dict[str, float]:
    every = [default_tolerance(item.dtype) for item in tensors_of(output) if item.is_floating_point()]
    widest = {name: max(column) for name, column in zip(("rtol", "atol"), zip(*every, strict=True), strict=False)}
    asked = {"rtol": settings.rtol, "atol": settings.atol}
    return {name: widest.get(name, DEFAULT_TOLERANCE) if own is None else own for name, own in asked.items()}
