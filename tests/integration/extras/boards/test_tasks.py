"""`task`: starting a folder and checking it, with the task's code run in the evaluation environment."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

import tasks
from runner.extras.boards.commands import task_check
from tests.integration.cli.conftest import Call, Said, write_task
from tests.support.waiting import PATIENCE_S, wait_until

FIXTURES = Path(__file__).parents[3] / "fixtures"
PROBLEMS = Path(tasks.__file__).parent / "problems"

REFERENCE = """\
import itertools
import torch

COUNT = itertools.count()


def ref_kernel(data):
    return data * 2


def generate_input(n, seed):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


def check_implementation(data, output):
    return torch.equal(output, data * 2)
"""


def write_folder(folder: Path, *, reference: str = REFERENCE, **keys: object) -> Path:
    """A task that doubles a vector, without solutions."""
    cases = {"tests": [{"n": 4, "seed": 1}], "benchmarks": [{"n": 8, "seed": 2}]}
    write_task(folder, **{**cases, "templates": None, **keys})
    (folder / "reference.py").write_text(reference)
    return folder


def add(folder: Path, name: str, text: str) -> None:
    """Put a file into the folder."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def run_code(call: Call, warm_eval_python: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command line on a host with an evaluation environment, one thread for torch."""
    monkeypatch.setenv("KERNEL_RUNNER_EVAL_PYTHON", str(warm_eval_python))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return call


@pytest.fixture
def run_code_anew(run_code: Call, evaluation_python: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The same with the interpreter itself, for all that starts and ends it."""
    monkeypatch.setenv("KERNEL_RUNNER_EVAL_PYTHON", str(evaluation_python))
    return run_code


def findings(said: Said) -> Mapping[str, tuple[str, str]]:
    """Name of each finding -> its mark and what was found."""
    return {check["name"]: (check["mark"], check["found"]) for check in said.document["checks"]}


def test_a_new_task_passes_its_check_as_it_is(run_code_anew: Call, tmp_path: Path) -> None:
    """The skeleton stands alone, has solutions of both kinds, and every question about it is answered well."""
    said = run_code_anew("task", "new", "row_max", "--directory", tmp_path)
    assert (said.code, said.out) == (0, "")
    assert "task check" in said.err
    checked = run_code_anew("task", "check", tmp_path / "row_max", "--json")
    assert (checked.code, checked.document["ok"]) == (0, True), checked.out
    assert {mark for mark, _ in findings(checked).values()} == {"ok"}
    assert {
        "CPU", "H100", "cases", "reference", "check of one element poisoned", "check of all elements shifted by one",
        "check of zeros", "check of its mean everywhere", "check of another seed's answer", "inputs", "digits",
        "solutions/correct/sorted.py", "solutions/wrong/skips_last.py", "solutions/wrong/stale.py", "template Python",
    } == set(findings(checked))  # fmt: skip
    assert "at (" in findings(checked)["solutions/wrong/skips_last.py"][1]
    *_, last, _ = checked.document["measured"]
    case = {"spec": "rows: 256; cols: 1024; seed: 1234", "input_bytes": 4 * 256 * 1024, "output_bytes": 4 * 256}
    assert case.items() <= last.items()
    assert min(last["generate_ns"], last["reference_ns"], last["check_ns"]) > 0


def test_a_bad_name_is_refused_and_what_is_there_stays(call: Call, tmp_path: Path) -> None:
    """A sentence says what a name may be, and nothing is made; a folder, a file and a dangling link are left alone."""
    for name in ("", "two words", "../up", "a/b", "-x", "1st", "ü", "x" * 101):
        said = call("task", "new", "--directory", tmp_path, "--", name)
        assert (said.code, f"task name is {name!r}, expected a letter" in said.err) == (2, True), name
        assert list(tmp_path.iterdir()) == []
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("folder", "file", "link"):
        said = call("task", "new", name, "--directory", tmp_path)
        assert (said.code, "is there already; choose another name" in said.err) == (2, True), name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "link"]


def test_a_check_that_accepts_everything_is_found_out(run_code: Call, tmp_path: Path) -> None:
    """Spoiled outputs pass, the seed changes nothing, templates do not parse or import: each is said with a remedy."""
    lax = REFERENCE.replace("manual_seed(seed)", "manual_seed(0)").replace("torch.equal(output, data * 2)", "True")
    templates = {"Python": "raises.py", "Triton": "broken.py", "CUDA": "cuda.py"}
    folder = write_folder(tmp_path / "lax", reference=lax, templates=templates)
    add(folder, "raises.py", "raise ValueError('not yet')\n")
    add(folder, "broken.py", "def custom_kernel(data:\n")
    add(folder, "cuda.py", "import cutlas\n")
    said = run_code("task", "check", folder, "--json")
    assert (said.code, said.document["ok"]) == (1, False)
    found = findings(said)
    accepted = ("failed", "check_implementation accepts it on 2 of 2 cases (n: 4; seed: 1)")
    wrong = ("one element poisoned", "all elements shifted by one", "zeros", "its mean everywhere")
    expected = {
        **{f"check of {way}": accepted for way in wrong},
        "seed": ("warning", "another seed makes the same inputs on 1 of 1 timed cases (n: 8; seed: 2)"),
        "hidden cases": ("warning", "none for CPU"),
        "template Python": ("failed", "does not import: ValueError: not yet"),
        "template CUDA": ("ok", "parses; not imported, since nothing here compiles it"),
    }
    assert expected.items() <= found.items()
    mark, says = found["template Triton"]
    assert (mark, "expected Python" in says) == ("failed", True)
    assert {"solutions/correct", "solutions/wrong"} <= set(found)
    assert all(check["remedy"] for check in said.document["checks"] if check["mark"] != "ok")


def test_a_template_that_python_does_not_compile_is_one_finding(run_code: Call, tmp_path: Path) -> None:
    """Whatever Python raises for it; the check goes on."""
    texts = {"Python": "x = " + "+".join("1" * 100_000), "Triton": "x = " + "-" * 100_000 + "1", "CUDA": "return 1\n"}
    folder = write_folder(tmp_path / "deep", templates={language: f"{language}.py" for language in texts})
    for language, text in texts.items():
        add(folder, f"{language}.py", text)
    outcome = run_code("task", "check", folder, "--json")
    checks = findings(outcome)
    for language in texts:
        mark, sentence = checks[f"template {language}"]
        assert (mark, sentence.endswith(", expected Python")) == ("failed", True), sentence
    assert checks["reference"] == ("ok", "passes its own check")


def test_what_is_compiled_is_not_read_as_python(run_code: Call, tmp_path: Path) -> None:
    """Templates and solutions of `lang: cu` are no Python; a line says that they are not tried."""
    folder = shutil.copytree(FIXTURES / "compiled_task", tmp_path / "compiled")
    with (folder / "task.yml").open("a") as file:
        file.write('templates: {"CUDA": "solutions/correct/loop.cuh"}\n')
    outcome = run_code("task", "check", folder, "--json")
    assert outcome.code == 0
    checks = findings(outcome)
    assert checks["solutions"] == ("warning", "not tried, nor are templates: lang is cu")
    assert checks["reference"] == ("ok", "passes its own check")
    assert "template CUDA" not in checks


@pytest.mark.parametrize("before", ["data * 2\n\n", "torch.randn(n", "torch.equal(", "itertools.count("])
@pytest.mark.parametrize("raises", ["torch.nn.functional.conv2d(1, 1)", "exit(3)"])
def test_a_failure_names_the_authors_own_line(run_code: Call, tmp_path: Path, before: str, raises: str) -> None:
    """Of reference, inputs, check or import, not that of a library or of the judge, whatever is raised."""
    folder = write_folder(tmp_path / "raises", reference=REFERENCE.replace(before, f"{raises}, {before}", 1))
    outcome = run_code("task", "check", folder, "--json")
    sentences = [text for name, (mark, text) in findings(outcome).items() if mark == "failed"]
    line = REFERENCE[: REFERENCE.index(before)].count("\n") + 1
    assert sentences
    assert all(text.partition("\n")[0].endswith(f" (reference.py, line {line})") for text in sentences), sentences


@pytest.mark.parametrize(
    ("changes", "extra", "expected"),
    [
        (
            {
                "return torch.randn(": "return torch.full((1,), float(seed)), torch.randn(",
                "data * 2": "data[1] * 2 + data[0] * 1e-6",
                "torch.equal(": "torch.allclose(",
            },
            "",
            {"inputs": "check_implementation accepts answers for another seed's input 1 of 2"},
        ),
        (
            {
                "COUNT =": "class Data:\n    def __init__(self, *parts):\n        self.parts = parts\n\n\nCOUNT =",
                "return torch.randn(": "return 7, Data(torch.full((1,), float(seed)), torch.randn(",
                "manual_seed(seed))": "manual_seed(seed)))",
                "data * 2": "data[1].parts[1] * 2 + data[1].parts[0] * 1e-6",
                "torch.equal(": "torch.allclose(",
            },
            "",
            {"inputs": "check_implementation accepts answers for another seed's input 1 of 2"},
        ),
        (
            {"return torch.randn(": "return torch.ones(1), torch.randn(", "data * 2": "data[1] * 2 * data[0]"},
            "",
            {"constant inputs": "the same with another seed: input 1 of 2"},
        ),
        (
            {"torch.equal(output, data * 2)": "torch.allclose(output, data * 2, atol=99)"},
            "",
            {
                "check of its mean everywhere": "check_implementation accepts it on 2 of 2 cases (n: 4; seed: 1)",
                "check of another seed's answer": "check_implementation accepts it on 2 of 2 cases (n: 4; seed: 1)",
                "inputs": "check_implementation accepts answers for another seed's input 1 of 1",
                "digits": "rounded to the 4 significant bits of float8, where the task states 24",
            },
        ),
        (
            {"torch.equal(output, data * 2)": "torch.allclose(output, data * 2, rtol=0.005)"},
            "",
            {"digits": "rounded to the 8 significant bits of bfloat16, where the task states 24"},
        ),
        ({"torch.equal(output, data * 2)": "torch.allclose(output, data * 2, rtol=0.005)"}, "math: bf16", {}),
        ({}, "hidden: [{n: 3, seed: 5}]", {"hidden cases": None}),
    ],
)
def test_what_invites_a_shortcut_is_said(
    run_code: Call, tmp_path: Path, changes: Mapping[str, str], extra: str, expected: Mapping[str, str | None]
) -> None:
    """An input or digits that may be left out, an answer for other inputs that passes, no hidden case."""
    reference = REFERENCE
    for before, after in changes.items():
        reference = reference.replace(before, after)
    folder = write_folder(tmp_path / "lenient", reference=reference)
    add(folder, "runner.yml", f"harness: builtin\n{extra}\n")
    found = findings(run_code("task", "check", folder, "--json"))
    assert ("hidden cases" in found) is ("hidden cases" not in expected)
    ways = ("check of its mean everywhere", "check of another seed's answer", "digits")
    bad = {name for name, (mark, _) in found.items() if mark != "ok" and (name in ways or name.endswith("inputs"))}
    assert bad == set(expected) - {"hidden cases"}
    assert all(text is None or text in found[name][1] for name, text in expected.items())


#: What a check makes of two outputs, the second of which is in float16 -> the findings that name the output.
PARTS = {
    "equal(0) and equal(1)": set(),
    "equal(0)": {("check of zeros", "output 2 of 2"), ("digits", "output 2 of 2")},
    "equal(1)": {("check of zeros", "output 1 of 2"), ("digits", "output 1 of 2")},
    "close(0, rtol=0.005) and equal(1)": {("digits", "output 1 of 2")},
    "equal(0) and close(1, rtol=0.1)": {("digits", "output 2 of 2")},
    "close(0, atol=99) and equal(1)": {("check of zeros", "output 1 of 2"), ("digits", "output 1 of 2")},
    "equal(0) and close(1, atol=99)": {("check of zeros", "output 2 of 2"), ("digits", "output 2 of 2")},
}


@pytest.mark.parametrize("parts", PARTS)
def test_each_of_several_outputs_has_to_be_compared(run_code: Call, tmp_path: Path, parts: str) -> None:
    """A check that leaves one out, or has a loose tolerance for it, is told which."""
    reference = REFERENCE.partition("def check_implementation")[0].replace("data * 2", "data * 2, data.half() * 2")
    reference += (
        "def check_implementation(data, output):\n"
        "    right = ref_kernel(data)\n"
        "    equal = lambda index: torch.equal(output[index], right[index])\n"
        "    close = lambda index, **limits: torch.allclose(output[index], right[index], **limits)\n"
        f"    return {parts}\n"
    )
    outcome = run_code("task", "check", write_folder(tmp_path / "parts", reference=reference), "--json")
    asked = ("check of zeros", "digits")
    found = {(name, text) for name, (mark, text) in findings(outcome).items() if name in asked and mark != "ok"}
    assert {name for name, _ in found} == {name for name, _ in PARTS[parts]}
    assert all(f" {which} " in dict(found)[name] for name, which in PARTS[parts])


#: What a reference returns -> the finding about it.
OUTPUTS = {
    "(data * 2)[:0]": ("failed", "ref_kernel's has no element on any case"),
    "()": ("failed", "ref_kernel's has no element on any case"),
    "data * torch.nan": ("warning", "ref_kernel's has NaN on 2 of 2 cases (n: 4; seed: 1)"),
    "(data * torch.nan).to(torch.float8_e5m2)": ("warning", "ref_kernel's has NaN on 2 of 2 cases (n: 4; seed: 1)"),
    "data / (len(data) < 5) * 0": ("warning", "ref_kernel's has NaN on 1 of 2 cases (n: 8; seed: 2)"),
    "[data, data[:0]]": None,
    "data.sum().item()": None,
}


@pytest.mark.parametrize("output", OUTPUTS)
def test_an_output_that_shows_no_fault_is_noticed(run_code: Call, tmp_path: Path, output: str) -> None:
    """One without elements, and one whose NaN equals that of a buffer which nobody wrote."""
    reference = REFERENCE.partition("def check_implementation")[0].replace("data * 2", output)
    reference += (
        "from utils import make_match_reference\n\nmatches = make_match_reference(ref_kernel)\n\n\n"
        "def check_implementation(data, output):\n"
        "    return output == ref_kernel(data) if isinstance(output, float) else matches(data, output)\n"
    )
    names = {"submission.py": "@SUBMISSION@", "eval.py": "@HARNESS@", "utils.py": "utils.py"}
    files = [{"name": name, "source": source} for name, source in {**names, "reference.py": "reference.py"}.items()]
    folder = write_folder(tmp_path / "blank", reference=reference, files=files)
    shutil.copy(PROBLEMS / "utils.py", folder)
    assert findings(run_code("task", "check", folder, "--json")).get("output") == OUTPUTS[output]


@pytest.mark.parametrize(
    ("check", "raised"),
    [
        ("    assert torch.equal(output, data * 2)\n    return True, ''", "AssertionError"),
        (
            "    torch.testing.assert_close(output, data * 2)\n    return True, ''",
            "AssertionError: Tensor-likes are not",
        ),
        ("    return {True: (True, '')}[torch.equal(output, data * 2)]", "KeyError: False"),
        ("    return torch.equal(output, data * 2) and torch.isfinite(output).all(), 'wrong'", None),
        ("    return (output == data * 2).all(), None", None),
        ("    return (output == data * 2).numpy().all(), 'wrong'", None),
    ],
)
def test_a_check_that_raises_is_no_check(run_code: Call, tmp_path: Path, check: str, raised: str | None) -> None:
    """The judge would call wrong submissions invalid; truth values of torch and numpy are answers."""
    reference = (
        f"{REFERENCE.partition('def check_implementation')[0]}def check_implementation(data, output):\n{check}\n"
    )
    folder = write_folder(tmp_path / "raises", reference=reference)
    add(folder, "solutions/correct/double.py", "def custom_kernel(data):\n    return data + data\n")
    add(folder, "solutions/wrong/half.py", "def custom_kernel(data):\n    return data / 2\n")
    found = findings(run_code("task", "check", folder, "--json"))
    assert found["solutions/correct/double.py"] == ("ok", "accepted")
    mark, sentence = found["solutions/wrong/half.py"]
    assert (mark, sentence.partition(":")[0]) == (("failed", "invalid") if raised else ("ok", "refused, wrong_answer"))
    mark, sentence = found.get("check", ("", ""))
    says = f"check_implementation raised {raised}"
    assert (mark, sentence[: len(says)]) == (("failed", says) if raised else ("", ""))


def test_solutions_must_keep_their_promise(run_code: Call, tmp_path: Path) -> None:
    """A wrong one among the right and a right one among the wrong fail the check; a word says what to do."""
    folder = write_folder(tmp_path / "swapped")
    add(folder, "solutions/correct/half.py", "def custom_kernel(data):\n    return data / 2\n")
    add(folder, "solutions/wrong/double.py", "def custom_kernel(data):\n    return data + data\n")
    add(folder, "solutions/wrong/crashes.py", "def custom_kernel(data):\n    return datum\n")
    said = run_code("task", "check", folder)
    assert said.code == 1
    assert "✗ solutions/correct/half.py: wrong_answer: case n: 4; seed: 4294967295: " in said.out
    assert "correct it, or the reference, or the tolerance" in said.out
    assert "✗ solutions/wrong/double.py: accepted" in said.out
    assert "add a case that shows what is wrong with it" in said.out
    assert "! solutions/wrong/crashes.py: runtime_error: " in said.out
    assert "its end says nothing of the check" in said.out
    assert "n: 4; seed: 1" in said.out


FIRST = "case n: 4; seed: 1"
#: What is changed in the reference and in the task -> findings, with their marks and what they say.
FAULTS: dict[str, tuple[dict[str, str], dict[str, object], dict[str, tuple[str, str]]]] = {
    "it raises": ({"data * 2\n\n": "data / None\n\n"}, {}, {FIRST: ("failed", "ref_kernel raised TypeError")}),
    "it is wrong": ({"data * 2\n\n": "data * 3\n\n"}, {}, {FIRST: ("failed", "refuses ref_kernel's own output")}),
    "inputs raise": ({"randn(n,": "randn(m,"}, {}, {FIRST: ("failed", "name 'm' is not defined")}),
    "no inputs": ({"generate_input": "make_input"}, {}, {"task": ("failed", "defines no function generate_input")}),
    "no reference": ({"ref_kernel": "reference"}, {}, {"reference": ("warning", "defines no ref_kernel")}),
    "inputs of no seed": (
        {"manual_seed(seed)": "manual_seed(next(COUNT))"},
        {},
        {FIRST: ("failed", "refuses ref_kernel's own output")},
    ),
    "an output buffer that is left as it was found": (
        {"torch.randn(n,": "torch.full((n,), float(next(COUNT))), torch.randn(n,", "data * 2": "data[1] * 2"},
        {},
        {"seed": ("warning", "the same case has other inputs the second time")},
    ),
    # Inputs are held twice, in half of the type's memory: the judge will refuse it.
    "a case that is too large for the type": (
        {"randn(n, generator=torch.Generator().manual_seed(seed))": "empty(n)"},
        {"tests": [{"n": 300_000_000, "seed": 1}]},
        {"case n: 300000000; seed: 1": ("failed", "give it smaller cases (runner.yml)")},
    ),
    # It misses the poisoned last element, except where there is but one.
    "a check of the first element": (
        {"torch.equal(output, data * 2)": "torch.equal(output[:1], data[:1] * 2)"},
        {"tests": [{"n": 1, "seed": 1}]},
        {"check of one element poisoned": ("warning", ""), "check of zeros": ("ok", "refused on 2 cases")},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_with_the_reference_is_said(run_code: Call, tmp_path: Path, fault: str) -> None:
    """Which case, which function, what happened; what is odd but works is a warning."""
    (changes, keys, expected), reference = FAULTS[fault], REFERENCE
    for before, after in changes.items():
        assert before in reference
        reference = reference.replace(before, after)
    said = run_code("task", "check", write_folder(tmp_path / "odd", reference=reference, **keys), "--json")
    found = findings(said)
    for name, (mark, says) in expected.items():
        assert (found[name][0], says in found[name][1]) == (mark, True), found[name]
    failed = any(mark == "failed" for mark, _ in found.values())
    assert said.code == (1 if failed else 0)


@pytest.mark.parametrize("deaf", [False, True])
def test_code_that_never_ends_is_ended(
    run_code_anew: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, deaf: bool
) -> None:
    """The limit is the task's own and a margin; the process is gone afterwards, even one that hears no interrupt."""
    running = tmp_path / "process"

    class WhenItRuns(threading.Timer):
        """Is over as soon as the task's code runs, however long a busy machine takes until then."""

        def run(self) -> None:
            while not running.exists() and not self.finished.wait(0.01):
                pass
            if not self.finished.is_set():
                self.function()

    monkeypatch.setattr(threading, "Timer", WhenItRuns)
    monkeypatch.setattr(task_check, "_MARGIN_S", 0.0)
    monkeypatch.setattr(task_check, "_GRACE_S", 0.5 if deaf else 30.0)
    reference = (
        "import os, signal, time\n"
        f"{'signal.signal(signal.SIGINT, signal.SIG_IGN)' if deaf else ''}\n"
        f"open({str(running) + '~'!r}, 'w').write(str(os.getpid()))\n"
        f"os.replace({str(running) + '~'!r}, {str(running)!r})\n"
        "time.sleep(600)\n"
    )
    folder = write_folder(tmp_path / "endless", reference=reference, test_timeout=1, benchmark_timeout=1)
    said = run_code_anew("task", "check", folder, "--json")
    assert said.code == 1
    assert findings(said)["code"] == ("failed", "did not end within 4 s")
    with pytest.raises(ProcessLookupError):
        os.kill(int(running.read_text()), 0)


@pytest.mark.parametrize("place", ["reference", "template"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_code_that_never_ends_ends_with_the_command(
    evaluation_python: Path, tmp_path: Path, number: signal.Signals, place: str
) -> None:
    """Whatever ends that, as a time limit in CI (simpler #1493)."""
    running = tmp_path / "process"
    endless = f"import os\nopen({str(running)!r}, 'w').write(f'{{os.getpid()}} ')\nwhile True: pass\n"
    reference, template = (REFERENCE, endless) if place == "template" else (endless, "custom_kernel = abs\n")
    folder = write_folder(tmp_path / "endless", reference=reference, templates={"Python": "template.py"})
    add(folder, "template.py", template)
    command = subprocess.Popen(
        [sys.executable, "-m", "runner.cli", "task", "check", str(folder)],
        env={"PATH": "/usr/bin:/bin", "KERNEL_RUNNER_EVAL_PYTHON": str(evaluation_python)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        pid = int(wait_until(lambda: running.exists() and running.read_text().strip(), "the code runs"))
        command.send_signal(number)
        assert command.wait(PATIENCE_S) == -number
    finally:
        command.kill()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the code has ended")


def test_code_that_takes_the_process_with_it_is_reported(run_code_anew: Call, tmp_path: Path) -> None:
    """An exit in reference.py is no success, whatever its code: what ran, for which case, and its last words."""
    exits = "import os\nprint('goodbye', flush=True)\nos._exit(0)\n"
    said = run_code_anew("task", "check", write_folder(tmp_path / "exits", reference=exits), "--json")
    ended = "the import of the task's reference.py ended its process with 0: goodbye"
    assert (said.code, findings(said)["code"]) == (1, ("failed", ended))
    late = REFERENCE.replace("return data * 2", "os.abort()", 1) + "\nimport os\n"
    said = run_code_anew("task", "check", write_folder(tmp_path / "late", reference=late), "--json")
    assert said.code == 1
    assert findings(said)["code"][1].startswith("the task's ref_kernel ended its process in case n: 4; seed: 1 with -6")


def test_without_an_evaluation_environment_the_files_alone_are_checked(call: Call, tmp_path: Path) -> None:
    """A warning says what was left out and how to have it."""
    said = call("task", "check", write_folder(tmp_path / "plain"), "--json")
    assert said.code == 0
    assert findings(said)["code"] == ("warning", "not run: eval_python is not set")


def test_several_ranks_generate_and_are_judged_together(run_code: Call, tmp_path: Path) -> None:
    """Every rank's inputs are counted, and a solution that communicates is accepted."""
    reference = (
        "import torch\nimport torch.distributed as dist\n\n\n"
        "def generate_input(world_size, n, seed, rank):\n"
        "    return torch.full((n,), float(seed + rank))\n\n\n"
        "def ref_kernel(data):\n    total = data.clone()\n    dist.all_reduce(total)\n    return total\n\n\n"
        "def check_implementation(data, output):\n    return torch.equal(ref_kernel(data), output)\n"
    )
    case = {"world_size": 2, "n": 8, "seed": 3}
    folder = write_folder(tmp_path / "sum", reference=reference, multi_gpu=True, tests=[case], benchmarks=[case])
    add(folder, "solutions/correct/sum.py", reference.replace("ref_kernel", "custom_kernel"))
    add(folder, "solutions/wrong/alone.py", "def custom_kernel(data):\n    return data\n")
    said = run_code("task", "check", folder, "--json")
    assert said.code == 0, said.out
    assert findings(said)["solutions/correct/sum.py"] == ("ok", "accepted")
    assert findings(said)["solutions/wrong/alone.py"][0] == "ok"
    assert said.document["measured"][0]["input_bytes"] == 2 * 8 * 4


EMULATED = """\
import torch


def ref_kernel(data):
    return data * 2


def generate_input(n, seed):
    return torch.randn(n, device="cuda", generator=torch.Generator(device="cuda").manual_seed(seed))


def check_implementation(data, output):
    return output.is_cuda and torch.equal(output, ref_kernel(data))
"""


def test_a_task_for_a_device_is_checked_without_one(run_code: Call, tmp_path: Path) -> None:
    """With --emulate-cuda cases, reference and solutions find a CUDA device, and the side they are on counts."""
    folder = write_folder(tmp_path / "twice", reference=EMULATED, tests=[{"n": 8, "seed": 1}])
    add(folder, "solutions/correct/doubled.py", "def custom_kernel(data):\n    return data + data\n")
    add(folder, "solutions/wrong/on_the_host.py", "def custom_kernel(data):\n    return (data * 2).cpu()\n")
    said = run_code("task", "check", folder, "--emulate-cuda", "--json")
    assert said.code == 0, said.out
    assert findings(said)["solutions/correct/doubled.py"] == ("ok", "accepted")
    assert findings(said)["solutions/wrong/on_the_host.py"][0] == "ok"
    refused = run_code("task", "check", folder, "--emulate-cuda", "--gpu", "H100")
    assert refused.code == 2
    assert "found GPU type H100 (vendor nvidia), expected one without devices" in refused.err
