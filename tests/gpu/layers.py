"""The layers of this folder's tests, what each case shows, and what follows from a record of them. Pure.

A layer rests on others: where one of those has failed, its own failures would say nothing, and it does not run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

#: How a test can end. `begun`: it has not ended, since its layer's time was over.
PASSED, FAILED, SKIPPED, BEGUN = "passed", "failed", "skipped", "begun"
#: So many honest cases without a false alarm, and forged ones that were found, before forged times may be rejected.
_HONEST, _FORGED = 40, 5


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Tests that run in one process of pytest."""

    name: str
    #: Arguments for pytest.
    select: Sequence[str]
    #: Seconds for all of them together.
    limit_s: float
    #: Layers that must not have failed.
    needs: Sequence[str] = ()
    #: What is to be done when it fails.
    failure: str


LAYERS: Final = (
    Layer(
        name="driver",
        select=("tests/gpu/test_driver.py",),
        limit_s=90,
        failure="calls on this device cannot be marked; nothing after it can be trusted",
    ),
    Layer(
        name="formats",
        select=("tests/gpu/test_formats.py",),
        limit_s=60,
        failure="references that use number formats are wrong on this device",
    ),
    Layer(
        name="harness",
        select=("tests/gpu/test_harness.py",),
        limit_s=220,
        needs=("driver",),
        failure="judge and worker do not work together on this device",
    ),
    Layer(
        name="clock",
        select=("tests/gpu/test_audit.py", "-k", "not right_solutions"),
        limit_s=360,
        needs=("harness",),
        failure="bounds are not as stated: times from this device must not count as audited",
    ),
    Layer(
        name="attacks",
        select=("tests/gpu/test_attacks.py",),
        limit_s=250,
        needs=("harness",),
        failure="a submission can gain time that it has not earned",
    ),
    Layer(
        name="corpus",
        select=("tests/gpu/test_audit.py", "-k", "right_solutions"),
        limit_s=300,
        needs=("clock",),
        failure="honest submissions are contradicted: keep rejects_forged_times = false",
    ),
    Layer(
        name="tasks",
        select=("tests/gpu/test_tasks.py", "tests/gpu/test_modules.py"),
        limit_s=300,
        needs=("harness",),
        failure="kinds of tasks or submissions do not work on this device",
    ),
    Layer(
        name="box",
        select=("tests/gpu/test_box.py",),
        limit_s=180,
        needs=("harness",),
        failure="the container's users, rights or filter of system calls keep the device from working",
    ),
    Layer(
        name="solutions",
        select=("tests/gpu/test_solutions.py",),
        limit_s=480,
        needs=("formats", "harness"),
        failure="sample solutions or templates do not work on this device",
    ),
    Layer(
        name="speed",
        select=("tests/gpu/test_speed.py",),
        limit_s=480,
        needs=("formats", "harness"),
        failure="official cases are not accepted, or the type's figures are wrong",
    ),
)
#: A sentence, and what the names of the tests begin with that show it. The part before :: is the file.
STATEMENTS: Final = (
    ("streams wait for numbers in the host's memory", "test_driver.py::"),
    ("number formats have the bytes that they have on a CPU", "test_formats.py::"),
    ("right submissions are accepted, wrong ones are not", "test_harness.py::"),
    ("honest kernels of 3 to 200 µs are bounded", "test_audit.py::test_honest"),
    ("the hand-over costs the same from 4 KiB to 128 MiB", "test_audit.py::test_the_hand_over"),
    ("a kernel of 7 ms is not contradicted", "test_audit.py::test_a_kernel_of_milliseconds"),
    ("a forged clock gains nothing", "test_audit.py::test_a_forged_clock"),
    ("work of the worker beside a call is seen", "test_audit.py::test_calls_beside"),
    ("nothing is computed before there are inputs", "test_audit.py::test_nothing_can"),
    ("no right solution of a task is contradicted", "test_audit.py::test_right_solutions"),
    ("attacks by streams, graphs, caches and lazy outputs gain nothing", "test_attacks.py::"),
    ("compiled, mixed and profiled submissions work; memory that is hoarded is found", "test_tasks.py::"),
    ("groups of modules are timed, beside every baseline", "test_modules.py::"),
    ("judge and worker work as two users behind the filter of system calls", "test_box.py::"),
    ("sample solutions and templates keep their promise", "test_solutions.py::"),
    ("official cases are right, at times that the type's figures allow", "test_speed.py::"),
)


def last_outcomes(record: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """How each test of a record ended the last time that it began."""
    return {line["test"]: line["outcome"] for line in record if "test" in line}


def failed_layers(record: Sequence[Mapping[str, Any]]) -> set[str]:
    """The layers in which a test failed that has not passed since."""
    outcomes = last_outcomes(record)
    return {line["layer"] for line in record if "test" in line and outcomes[line["test"]] == FAILED}


def summary(record: Sequence[Mapping[str, Any]], left: Mapping[str, str]) -> list[str]:
    """What a record says: what was shown and refuted, and what to write into the GPU type's file.

    Args:
        record: its lines: one with the machine's facts for every run, and one for every beginning and end of a test.
        left: layers that have not run to their end, and why.
    """
    outcomes = last_outcomes(record)
    shown: list[str] = []
    lines = [f"{name} was not finished: {why}" for name, why in left.items()]
    failing = failed_layers(record)
    lines += [f"{layer.name} failed: {layer.failure}" for layer in LAYERS if layer.name in failing]
    for sentence, prefix in STATEMENTS:
        found = {test: how for test, how in outcomes.items() if test.startswith(f"tests/gpu/{prefix}")}
        passed = sum(how == PASSED for how in found.values())
        broken = sorted(test.partition("::")[2] for test, how in found.items() if how == FAILED)
        open_ = sum(how == BEGUN for how in found.values())
        if broken:
            lines.append(f"refuted: {sentence} ({len(broken)} of {len(broken) + passed}: {', '.join(broken)})")
        elif passed:
            lines.append(f"shown: {sentence} ({passed} passed{f', {open_} not ended' if open_ else ''})")
            shown.append(sentence)
        else:
            lines.append(f"not tried: {sentence}")
    figures = {found["what"]: found for line in record for found in line.get("figures", ())}
    lines += [
        f"{what}: {found['value_s']:.3g} s, the target of {found['at_most_s']:g} s is "
        f"{'reached' if found['value_s'] <= found['at_most_s'] else 'missed'}"
        for what, found in figures.items()
    ]
    return [*lines, *_advice(record), *_hardware_run(record, shown)]


def _advice(record: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the timed calls say of rejects_forged_times."""
    outcomes = last_outcomes(record)
    honest, forged, alarms, missed = 0, 0, set[str](), set[str]()
    gates = set()
    for line in record:
        # A test that was repeated has a line for each time; all of them are evidence.
        for evaluation in line.get("evaluations", ()):
            if evaluation["gate"] is not None:
                gates.add(evaluation["gate"])
            for case in evaluation["cases"]:
                if case["timing"] == "claimed" or evaluation["gate"] != "open":
                    continue
                if "forged" in line["test"]:
                    forged += 1
                    missed |= set() if case["contradicted"] else {line["test"]}
                else:
                    honest += 1
                    alarms |= {line["test"]} if case["contradicted"] else set()
    found = [f"the gate was closed: {gate}" for gate in sorted(gates - {"open"})]
    counts = f"{honest} honest cases, {len(alarms)} of their tests with a false alarm; {forged} forged cases"
    broken = any(how == FAILED and "test_audit.py" in test for test, how in outcomes.items())
    if alarms or missed or broken or honest < _HONEST or forged < _FORGED:
        because = [
            "tests of the clock failed" if broken else "",
            f"contradicted: {', '.join(sorted(alarms))}" if alarms else "",
            f"not noticed: {', '.join(sorted(missed))}" if missed else "",
            f"{_HONEST} and {_FORGED} are needed" if honest < _HONEST or forged < _FORGED else "",
        ]
        return [*found, f"leave rejects_forged_times = false ({counts}; {'; '.join(filter(None, because))})"]
    return [*found, f"rejects_forged_times = true may be set ({counts}, all noticed)"]


def _hardware_run(record: Sequence[Mapping[str, Any]], shown: Sequence[str]) -> list[str]:
    """What to append to the GPU type's file."""
    facts = next((line for line in reversed(record) if "device" in line), None)
    return [] if facts is None or not shown else hardware_run(facts, shown)


def hardware_run(facts: Mapping[str, str], shown: Sequence[str]) -> list[str]:
    """The lines for a GPU type's file: date, device, driver and software, and what was shown there."""
    # Quoted as TOML quotes: the same as JSON for these texts.
    quoted = {key: json.dumps(facts[key], ensure_ascii=False) for key in ("device", "driver", "software")}
    what = ", ".join(json.dumps(sentence, ensure_ascii=False) for sentence in shown)
    return [
        "for the GPU type's file:",
        "",
        "[[hardware_runs]]",
        f"date = {facts['date']}",
        *(f"{key} = {value}" for key, value in quoted.items()),
        f"what = [{what}]",
    ]
