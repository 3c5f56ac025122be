"""A task played through before its first submission: cases, reference, check, solutions, templates.

Run by `kernel-runner task check` in the evaluation environment, as the author's user and without a container: the code
is the author's own. Reads one JSON request on stdin and writes JSON lines: `{"case": …}` for each case that was
measured, `{"finding": …}` for each thing it has an opinion on, `{"end": true}` when it is through. What the task's code
prints goes to stderr.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, TypeVar

import torch

from runner.extras.boards.fork_server import END_WITH_PARENT, ForkServers
from tasks.harness import emulate
from tasks.harness.judge.author_code import begin_at, open_page_if_given, running, sentence_of
from tasks.harness.judge.cases import LARGEST_SEED, Case, CaseError, parse_cases
from tasks.harness.judge.problem import CheckRaised, Problem, TaskFault, rng_seed_of
from tasks.harness.judge.request import JudgeRequest, ModeRequest
from tasks.harness.local import JudgeFailed, evaluate
from tasks.harness.shared.source import compile_text

#: Seconds that the import of a template may take; it may compile.
_IMPORT_TIMEOUT_S = 180.0
#: Exit code of a template that imports an unknown module; its last line on stdout names that.
_EXIT_MISSING = 3
#: Imports a template. Torch comes first, because it looks for some tools itself.
_IMPORT = f"""\
{END_WITH_PARENT}
import importlib, sys, torch
sys.path.insert(0, ".")
try:
    module = importlib.import_module(sys.argv[1])
except ModuleNotFoundError as error:
    print(error.name)
    sys.exit({_EXIT_MISSING})
if not callable(getattr(module, "custom_kernel", None)):
    sys.exit("it defines no custom_kernel")
"""
_REFERENCE = "the task's ref_kernel"
#: Outputs for other inputs, and with fewer digits, are tried where reference and check took at most this. Of several
#: outputs, each is spoiled until this time is spent on a case.
_TRIED_NS = 1_000_000_000
#: Inputs are replaced one by one until this time is spent: a task may have hundreds of them.
_INPUTS_NS = 2_000_000_000
#: Significant bits of floating-point types; of `math` in runner.yml, too.
_BITS = {
    "float64": 53, "float32": 24, "float16": 11, "bfloat16": 8,
    "fp64": 53, "fp32": 24, "tf32": 11, "fp16": 11, "bf16": 8, "fp8": 4, "fp6": 3, "fp4": 2, "int8": 8, "int4": 4,
}  # fmt: skip
#: Significant bits that are stated -> fewer ones, which a usual tolerance refuses, and a type that has them.
_FEWER_BITS = {
    53: {24: "float32", 11: "float16", 8: "bfloat16", 4: "float8"},
    24: {11: "float16", 8: "bfloat16", 4: "float8"},
    11: {4: "float8"},
    8: {4: "float8"},
}
#: Narrow floating-point types have no arithmetic, but take a NaN by conversion.
_NAN_TYPES = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2")

#: The judge's words for the case that failed.
_TRIED = re.compile(r"^test (\d+) of \d+: ")

Value = TypeVar("Value")
Emit = Callable[[Mapping[str, Any]], None]
Reference = Callable[[object], object]


def main() -> int:
    """Play the task of the request on stdin through; exit code 0 unless this program itself broke."""
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # A shell that started this in the background may have had it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def emit(message: Mapping[str, Any]) -> None:
        lines.write(json.dumps(message) + "\n")
        lines.flush()

    open_page_if_given()
    request = json.load(sys.stdin)
    if request["emulate_cuda"]:
        emulate.ask(request["memory_bytes"])
    with tempfile.TemporaryDirectory(prefix="kernel-runner-") as place, ForkServers() as servers:
        try:
            _Rehearsal(request, Path(place), emit, servers).run()
        except (TaskFault, CaseError) as fault:
            emit(_finding("task", "failed", str(fault)))
    # The task's code could have left with exit code 0, too.
    emit({"end": True})
    return 0


def _finding(name: str, mark: str, sentence: str, remedy: str | None = None) -> Mapping[str, Any]:
    return {"finding": {"name": name, "mark": mark, "found": sentence, "remedy": remedy}}


def _has_nan(dtype: torch.dtype) -> bool:
    return str(dtype).removeprefix("torch.") in _NAN_TYPES


def _contains_nan(leaf: torch.Tensor) -> bool:
    if not (_has_nan(leaf.dtype) or leaf.is_complex()):
        return False
    # Types of one byte have no isnan.
    return bool((leaf.bfloat16() if leaf.dtype.itemsize == 1 else leaf).isnan().any())


def _poisoned(data: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The last element is NaN; where there is no NaN, all its bits are other ones."""
    last = data[-dtype.itemsize :]
    if _has_nan(dtype):
        last.copy_(torch.full((1,), float("nan"), device=data.device).to(dtype).view(torch.uint8))
    else:
        last.copy_(last ^ (1 if dtype is torch.bool else 0xFF))
    return data


def _averaged(data: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if not _has_nan(dtype) and dtype not in (torch.int32, torch.int64):
        return data
    values = data.view(dtype)
    return torch.full_like(values, values.double().mean().item()).view(torch.uint8)


#: Ways to be wrong that every check must notice: the bytes of an output tensor and its dtype -> other bytes.
_SPOILERS: Mapping[str, Callable[[torch.Tensor, torch.dtype], torch.Tensor]] = {
    "one element poisoned": _poisoned,
    "all elements shifted by one": lambda data, dtype: data.roll(dtype.itemsize),
    "zeros": lambda data, _: torch.zeros_like(data),
    "its mean everywhere": _averaged,
}
#: The right output for the inputs of another seed.
_REPLAYED = "another seed's answer"


class _Rehearsal:
    """One task in one directory."""

    def __init__(self, request: Mapping[str, Any], place: Path, emit: Emit, servers: ForkServers) -> None:
        self._request = request
        self._servers = servers
        self._place = place
        self._emit = emit
        #: Spoiler and which output, empty where there is one -> on how many cases it was refused, and accepted.
        self._refused: Counter[tuple[str, str]] = Counter()
        self._accepted: dict[tuple[str, str], list[str]] = {}
        #: Cases whose right output has elements, and of these with NaN among them.
        self._with_elements = 0
        self._with_nan: list[str] = []
        #: What the check raised first where it got a wrong output.
        self._raised = ""
        #: Inputs of which another seed's values make a wrong answer on some case, ...
        self._matter: set[str] = set()
        #: ... and another answer that the check accepts.
        self._faint: set[str] = set()
        #: Inputs that another seed leaves as they are.
        self._constant: set[str] = set()
        self._inputs_ns = 0
        #: Significant bits stated, fewer ones, which output -> on how many cases it was tried in these, and accepted.
        self._fewer: dict[tuple[int, int, str], list[int]] = {}

    def run(self) -> None:
        """Everything, the cheap questions first; later ones are asked whatever the answers were."""
        directory = self._place / "task"
        directory.mkdir()
        Problem.unpack(self._request["files"], directory)
        problem = Problem.load(directory)
        cases = parse_cases(self._request["lines"], global_seed=self._request["seed"])
        worked = [case for case in cases if self._measure(problem, case)]
        if len(worked) == len(cases):
            self._find("cases", "ok", f"all {len(cases)} generate, also with the largest secret seed")
        if worked:
            timed = [case for case in worked if case.spec in self._request["timed_lines"]]
            self._seeds(problem, worked[0], timed or worked[:1])
        self._check_of_reference(all_worked=len(worked) == len(cases))
        for kind in ("correct", "wrong"):
            self._solutions(kind)
        self._templates()

    def _find(self, name: str, mark: str, sentence: str, remedy: str | None = None) -> None:
        self._emit(_finding(name, mark, sentence, remedy))

    def _note(self, spoiler: str, case: Case, good: bool, which: str = "") -> None:  # noqa: FBT001 the check's answer
        """Note what the check says of a wrong output."""
        self._refused[spoiler, which] += not good
        self._accepted.setdefault((spoiler, which), []).extend([case.spec] if good else [])

    def _generate(self, problem: Problem, case: Case) -> Sequence[object]:
        """The inputs of every rank."""
        ranks = self._request["ranks"]
        given = [{}] if ranks is None else [{"rank": rank} for rank in range(ranks)]
        seed = rng_seed_of(self._request["seed"])
        return [problem.generate({**case.arguments, **more}, rng_seed=seed) for more in given]

    def _measure(self, problem: Problem, case: Case) -> bool:
        """Generate a case, run the reference on it, check its output and spoiled ones; whether all of it worked."""
        begin_at(f"case {case.spec}")
        measured: dict[str, Any] = {"spec": case.spec, "reference_ns": None, "check_ns": None, "output_bytes": None}
        try:
            measured["generate_ns"], inputs = _timed(lambda: self._generate(problem, case))
            measured["input_bytes"] = self._bytes_of(problem, inputs)
            # Several ranks need their process group: the judge has one, the correct solutions stand in.
            reference = _reference()
            if self._request["ranks"] is None and reference is not None:
                self._judge(problem, case, inputs[0], measured, reference)
        except TaskFault as fault:
            self._find(f"case {case.spec}", "failed", str(fault), "correct reference.py or the case")
            return False
        except Exception as error:  # noqa: BLE001 the author's code may raise anything, and is to hear of it
            sentence = f"ref_kernel raised {sentence_of(error, self._place / 'task')}"
            self._find(f"case {case.spec}", "failed", sentence, "correct reference.py or the case")
            return False
        self._emit({"case": measured})
        return self._generates_in_secret(problem, case)

    def _bytes_of(self, problem: Problem, inputs: Sequence[object]) -> int:
        """The bytes of all ranks' inputs.

        Raises:
            TaskFault: the judge cannot send them, or they are too many.
        """
        return sum(problem.pack(data, memory_bytes=self._request["memory_bytes"]).nbytes for data in inputs)

    def _generates_in_secret(self, problem: Problem, case: Case) -> bool:
        """Whether a case generates with the largest seed that a secret run may give it."""
        if case.seed is None:
            return True
        secret = Case(spec=case.spec, arguments=case.with_seed(LARGEST_SEED))
        try:
            self._bytes_of(problem, self._generate(problem, secret))
        except TaskFault as fault:
            sentence = f"with seed {LARGEST_SEED}, which a secret run may have: {fault}"
            remedy = "take every seed from 0 to 2**32 - 1: reduce what is computed of `seed`, e.g. by `% 2**32`"
            self._find(f"case {case.spec}", "failed", sentence, remedy)
            return False
        return True

    def _judge(
        self, problem: Problem, case: Case, data: object, measured: dict[str, Any], reference: Reference
    ) -> None:
        with running(_REFERENCE):
            measured["reference_ns"], right = _timed(lambda: reference(data))
        leaves = _leaves(right)
        measured["output_bytes"] = sum(leaf.numel() * leaf.element_size() for leaf in leaves)
        measured["check_ns"], (good, message) = _timed(lambda: self._answer(problem, case, right))
        if not good:
            raise TaskFault(f"check_implementation refuses ref_kernel's own output: {message.splitlines()[0]}")
        # One without tensors may be a number.
        nothing = isinstance(right, tuple | list) and not right
        self._with_elements += any(leaf.numel() for leaf in leaves) or not (leaves or nothing)
        self._with_nan += [case.spec] if any(map(_contains_nan, leaves)) else []
        quick = measured["reference_ns"] + measured["check_ns"] <= _TRIED_NS
        if quick:
            self._replay(problem, case, reference, leaves)
        start_ns = time.perf_counter_ns()
        for index, leaf in enumerate(leaves):
            if index and time.perf_counter_ns() - start_ns > _TRIED_NS:
                break

            def accepts(changed: torch.Tensor, index: int = index) -> bool:
                answer = _rebuilt(right, iter([*leaves[:index], changed, *leaves[index + 1 :]]))
                return self._accepts(problem, case, answer)

            which = f"output {index + 1} of {len(leaves)}" if len(leaves) > 1 else ""
            if quick and leaf.is_floating_point():
                self._round(leaf, which, accepts)
            self._spoil(case, leaf, which, accepts)

    def _spoil(self, case: Case, leaf: torch.Tensor, which: str, accepts: Callable[[torch.Tensor], bool]) -> None:
        """Try one of the outputs spoiled in each way, beside the right others."""
        for name, spoil in _SPOILERS.items() if leaf.numel() else ():
            spoiled = spoil(_raw(leaf), leaf.dtype).view(leaf.dtype).view(leaf.shape)
            if not _same(leaf, spoiled):
                self._note(name, case, accepts(spoiled), which)

    def _replay(self, problem: Problem, case: Case, reference: Reference, right: Sequence[torch.Tensor]) -> None:
        """Try the answer to another seed's inputs, and to inputs of which one is another seed's."""
        if case.seed is None:
            return
        other_case = Case(spec=case.spec, arguments=case.with_seed(case.seed ^ 1))
        own, other = (_leaves(self._generate(problem, each)[0]) for each in (case, other_case))
        if [(leaf.shape, leaf.dtype) for leaf in own] != [(leaf.shape, leaf.dtype) for leaf in other]:
            return
        differing = [
            index for index, pair in enumerate(zip(own, other, strict=True)) if not torch.equal(*map(_raw, pair))
        ]
        # A buffer for the output is filled with NaN.
        self._constant |= {
            f"input {index + 1} of {len(own)}"
            for index, leaf in enumerate(own)
            if index not in differing and not (_has_nan(leaf.dtype) and leaf.double().isnan().all())
        }

        def answer(replaced: Sequence[int]) -> object | None:
            data = self._generate(problem, case)[0]
            leaves = [other[index].clone() if index in replaced else leaf for index, leaf in enumerate(_leaves(data))]
            # Inputs may belong together.
            with contextlib.suppress(Exception):
                return reference(_rebuilt(data, iter(leaves)))
            return None

        for index in differing:
            name = f"input {index + 1} of {len(own)}"
            if name in self._matter or self._inputs_ns > _INPUTS_NS:
                continue
            start_ns = time.perf_counter_ns()
            changed = answer([index])
            if changed is None or not self._answer(problem, case, changed)[0]:
                self._matter.add(name)
            elif not _same(changed, right):
                self._faint.add(name)
            self._inputs_ns += time.perf_counter_ns() - start_ns
        replayed = answer(differing)
        if replayed is not None and not _same(replayed, right):
            self._note(_REPLAYED, case, self._answer(problem, case, replayed)[0])

    def _round(self, leaf: torch.Tensor, which: str, accepts: Callable[[torch.Tensor], bool]) -> None:
        """Try one of the outputs with fewer digits than the task states, beside the right others."""
        names = (str(leaf.dtype).removeprefix("torch."), self._request["math"] or "float64")
        stated = min(_BITS.get(name, 0) for name in names)
        for bits in _FEWER_BITS.get(stated, ()):
            rounded = _rounded(leaf, bits)
            if _same(rounded, leaf):
                continue
            tried = self._fewer.setdefault((stated, bits, which), [0, 0])
            good = accepts(rounded)
            tried[0] += 1
            tried[1] += good
            if not good:
                return

    def _accepts(self, problem: Problem, case: Case, wrong: object) -> bool:
        """Whether the check accepts a wrong output of the right structure. The judge takes no exception for a no."""
        try:
            return problem.check(self._generate(problem, case)[0], wrong)[0]
        except CheckRaised as raised:
            self._raised = self._raised or str(raised).partition("\n")[0]
            return False

    def _answer(self, problem: Problem, case: Case, output: object) -> tuple[bool, str]:
        """The check's answer on fresh inputs: the reference may have written into its own."""
        try:
            return problem.check(self._generate(problem, case)[0], output)
        except CheckRaised as raised:
            return False, f"it raised {raised}"

    def _check_of_reference(self, *, all_worked: bool) -> None:
        if self._request["ranks"] is not None:
            sentence = "not run outside the judge, as it has several ranks: the correct solutions stand in for it"
            self._find("reference", "ok", sentence)
            return
        if _reference() is None:
            remedy = "define ref_kernel, and make check_implementation of it by make_match_reference"
            self._find("reference", "warning", "reference.py defines no ref_kernel to try the check with", remedy)
            return
        if all_worked:
            self._find("reference", "ok", "passes its own check")
        if self._raised:
            sentence = f"check_implementation raised {self._raised} for a wrong output, which the judge calls `invalid`"
            self._find("check", "failed", sentence, "let it return (False, 'why') instead")
        if all_worked and not self._with_elements:
            self._find("output", "failed", "ref_kernel's has no element on any case", "give the check some to compare")
        elif self._with_nan:
            sentence = f"ref_kernel's has NaN on {len(self._with_nan)} of {self._with_elements} cases"
            remedy = "let it write every element, or make other inputs: NaN of a submission is right there"
            self._find("output", "warning", f"{sentence} ({self._with_nan[0]})", remedy)
        for name in (*_SPOILERS, _REPLAYED):
            self._wrong_outputs(name)
        self._shortcuts()

    def _wrong_outputs(self, name: str) -> None:
        """Say what the check made of outputs that were spoiled in one way."""
        refused = {which: count for (spoiler, which), count in self._refused.items() if spoiler == name}
        accepted = {which: self._accepted[name, which] for which in refused if self._accepted[name, which]}
        for which, specs in accepted.items():
            self._find(
                f"check of {name}",
                "warning" if refused[which] else "failed",
                f"check_implementation accepts it {f'in {which} ' if which else ''}"
                f"on {len(specs)} of {len(specs) + refused[which]} cases ({specs[0]})",
                "make inputs whose answers differ by more than the tolerance"
                if name == _REPLAYED
                else "compare every element, with a tighter tolerance, and let NaN fail",
            )
        if refused and not accepted:
            self._find(f"check of {name}", "ok", f"refused on {max(refused.values())} cases")

    def _shortcuts(self) -> None:
        """Say which inputs and digits a submission may leave out."""
        faint = self._faint - self._matter
        if faint:
            sentence = f"check_implementation accepts answers for another seed's {', '.join(sorted(faint))}"
            remedy = "let every input change the output by more than the tolerance, on some case at least"
            self._find("inputs", "warning", sentence, remedy)
        elif self._matter:
            self._find("inputs", "ok", f"an answer for another seed's is refused, for each of {len(self._matter)}")
        if self._constant:
            sentence = f"the same with another seed: {', '.join(sorted(self._constant))}"
            remedy = "draw them anew from the seed, or a submission may keep what it has computed of them"
            self._find("constant inputs", "note", sentence, remedy)
        # A case that refuses the output is enough: all of them are tried in every ranked run.
        loose = [key for key, (tried, accepted) in self._fewer.items() if accepted == tried]
        if loose:
            stated, bits, which = min(loose, key=lambda key: key[1])
            sentence = (
                f"check_implementation accepts {which or 'outputs'} rounded to the {bits} significant bits of "
                f"{_FEWER_BITS[stated][bits]}, where the task states {stated}"
            )
            remedy = "tighten the tolerance on one case at least, or state `math` in runner.yml if fewer digits will do"
            self._find("digits", "warning", sentence, remedy)
        elif self._fewer:
            stated, bits, _ = max(self._fewer)
            sentence = f"outputs rounded to the {bits} significant bits of {_FEWER_BITS[stated][bits]} are refused"
            self._find("digits", "ok", sentence)

    def _seeds(self, problem: Problem, case: Case, timed: Sequence[Case]) -> None:
        """Whether a case's inputs depend on nothing but its seed, and those of timed ones on that."""
        once, again = self._bytes(problem, case), self._bytes(problem, case)
        if not _same(once, again):
            remedy = "seed a torch.Generator with `seed`, and fill output buffers with NaN instead of leaving them"
            self._find("seed", "warning", "the same case has other inputs the second time", remedy)
        same = [each.spec for each in timed if each.seed is None or self._is_constant(problem, each)]
        if same:
            sentence = f"another seed makes the same inputs on {len(same)} of {len(timed)} timed cases ({same[0]})"
            remedy = "draw them from a generator that `seed` seeds; secret runs and timed calls differ by it alone"
            self._find("seed", "warning", sentence, remedy)

    def _is_constant(self, problem: Problem, case: Case) -> bool:
        other = Case(spec=case.spec, arguments=case.with_seed((case.seed or 0) ^ 1))
        return _same(self._bytes(problem, case), self._bytes(problem, other))

    def _bytes(self, problem: Problem, case: Case) -> Sequence[torch.Tensor]:
        data = self._generate(problem, case)[0]
        return [storage.clone() for storage in problem.pack(data, memory_bytes=1 << 62).storages]

    def _solutions(self, kind: str) -> None:
        for name, text in self._request[kind].items():
            title = f"solutions/{kind}/{name}"
            try:
                verdict, message = self._verdict(text)
            except JudgeFailed as error:
                self._find(title, "failed", f"the harness broke on it: {error}")
                continue
            answer = f"{verdict}: {message}" if message else verdict
            if verdict == "invalid":
                self._find(title, "failed", answer, "correct the task")
            elif kind == "correct":
                good = verdict == "accepted"
                remedy = None if good else "correct it, or the reference, or the tolerance"
                self._find(title, "ok" if good else "failed", answer, remedy)
            elif verdict == "accepted":
                remedy = "add a case that shows what is wrong with it, or compare more strictly"
                self._find(title, "failed", answer, remedy)
            elif verdict == "wrong_answer":
                self._find(title, "ok", f"refused, {answer}")
            else:
                remedy = "let it return a wrong answer: its end says nothing of the check"
                self._find(title, "warning", answer, remedy)

    def _verdict(self, text: str) -> tuple[str, str]:
        """What the judge says to a submission on every case, and the message's first line."""
        request = self._request
        report = evaluate(
            JudgeRequest(
                modes=(
                    ModeRequest(name="test", cases=tuple(request["trial_lines"]), timeout_s=request["trial_timeout_s"]),
                ),
                files=request["files"],
                worker_files=tuple(request["worker_files"]),
                submission_name=request["submission_name"],
                submission=text,
                seed=request["seed"],
                ranks=request["ranks"],
                device="auto",
                memory_bytes=request["memory_bytes"],
            ),
            # All solutions share one import of torch for judges, and one for workers.
            start=self._servers.start,
        )
        if report.author_exit is not None:
            return "invalid", str(report.author_exit)
        judged = [step.judged for step in report.steps if step.judged is not None]
        bad = next((each for each in judged if each.verdict != "accepted"), None)
        if bad is not None:
            # How much differs and the first place say enough. The trial's count of cases is not the table's.
            where = "; ".join((bad.message or "").strip().partition("\n")[0].split("; ")[:2])
            return bad.verdict, _TRIED.sub(lambda match: f"case {request['trial_lines'][int(match[1]) - 1]}: ", where)
        return ("accepted", "") if judged else ("internal_error", "the judge said nothing")

    def _templates(self) -> None:
        directory = self._place / "templates"
        directory.mkdir()
        request = self._request
        for name in request["worker_files"]:
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(request["files"][name], encoding="utf-8")
        for language, text in request["templates"].items():
            title = f"template {language}"
            try:
                compile_text(text, title)
            except SyntaxError as error:
                # None: of the text as a whole, as one that is nested too deeply.
                place = "" if error.lineno is None else f" in line {error.lineno}"
                sentence = f"found {error.msg}{place}, expected Python"
                self._find(title, "failed", sentence, "correct the template")
                continue
            if _compiles(language):
                self._emit(_imported(title, text, directory, language))
            else:
                self._find(title, "ok", "parses; not imported, since nothing here compiles it")


def _imported(title: str, text: str, directory: Path, language: str) -> Mapping[str, Any]:
    """Import a template in a process of its own."""
    module = f"template_{language.lower()}"
    (directory / f"{module}.py").write_text(text, encoding="utf-8")
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _IMPORT, module],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_IMPORT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _finding(title, "failed", f"its import takes more than {_IMPORT_TIMEOUT_S:g} s", "make it quicker")
    if done.returncode == _EXIT_MISSING:
        missing = done.stdout.strip().rpartition("\n")[2]
        sentence = f"imports {missing}, which is neither here nor a file that submissions see"
        return _finding(title, "warning", sentence, "see that the hosts have it, or do without")
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        return _finding(title, "failed", f"does not import: {last}", "let it define custom_kernel as it is")
    return _finding(title, "ok", "parses and imports")


def _compiles(language: str) -> bool:
    """Whether this host has what a template compiles for when it is imported."""
    if emulate.asked() or not torch.cuda.is_available():
        return language == "Python"
    return bool(torch.version.hip) if language == "HIP" else language != "CUDA" or bool(torch.version.cuda)


def _reference() -> Reference | None:
    reference = getattr(sys.modules["reference"], "ref_kernel", None)
    return reference if callable(reference) else None


def _timed(function: Callable[[], Value]) -> tuple[int, Value]:
    start_ns = time.perf_counter_ns()
    value = function()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter_ns() - start_ns, value


def _leaves(value: object) -> list[torch.Tensor]:
    """The tensors of a value, in order."""
    leaves: list[torch.Tensor] = []

    def note(leaf: torch.Tensor) -> torch.Tensor:
        leaves.append(leaf)
        return leaf

    _mapped(value, note)
    return leaves


def _rebuilt(value: object, leaves: Iterator[torch.Tensor]) -> object:
    """The same structure with other tensors."""
    return _mapped(value, lambda _: next(leaves))


def _mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> object:  # noqa: ANN401 whatever a task makes
    """The same structure with each tensor changed, in objects of the task's own classes, too."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_mapped(item, change) for item in value]
        return items if isinstance(value, list) else getattr(type(value), "_make", tuple)(items)
    if hasattr(value, "__dict__") and _directory_of(type(value).__module__) == _directory_of("reference"):
        changed = copy(value)
        vars(changed).update({name: _mapped(item, change) for name, item in vars(value).items()})
        return changed
    return value


def _directory_of(module: str) -> Path:
    return Path(getattr(sys.modules.get(module), "__file__", None) or "").parent


def _rounded(leaf: torch.Tensor, bits: int) -> torch.Tensor:
    """A floating-point tensor in so many significant bits."""
    mantissa, exponent = torch.frexp(leaf.double())
    return torch.ldexp((mantissa * 2**bits).round() / 2**bits, exponent).to(leaf.dtype)


def _raw(leaf: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor's elements as bytes."""
    return leaf.detach().clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8)


def _same(one: object, other: object) -> bool:
    """Whether two values have tensors of the same bytes."""
    ones, others = (list(map(_raw, _leaves(value))) for value in (one, other))
    return len(ones) == len(others) and all(map(torch.equal, ones, others))


if __name__ == "__main__":
    sys.exit(main())
