"""What the worker makes of a submission's files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.harness.worker import parse
from tasks.harness.worker.failures import describe_failure, failed
from tasks.harness.worker.submission import LoadFailed, import_submission, load


@pytest.fixture(autouse=True)
def _imports_end_with_the_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("submission", None)


def test_a_python_submission_is_its_kernel_and_its_files_lie_beside_it(tmp_path: Path) -> None:
    """It may import them, also from folders."""
    source = "from kernels.twice import twice\ndef custom_kernel(data):\n    return twice(data)\n"
    files = {"kernels/twice.py": "def twice(x):\n    return 2 * x\n", "s.py": source}

    loaded = load(tmp_path, files, "s.py", None)

    assert (loaded.kernel(loaded.adapt(21)), loaded.file, loaded.program) == (42, "s.py", None)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("s.py", "x = 1\n", "defines no function custom_kernel (found nothing of that name)"),
        ("s.py", "custom_kernel = 3\n", "defines no function custom_kernel (found a int)"),
        ("s.txt", "", "s.txt is no Python file; expected a name that ends .py"),
    ],
)
def test_a_file_without_a_kernel_is_a_runtime_error_of_the_submission(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    """The message says what was found, without a traceback of the harness."""
    with pytest.raises(LoadFailed) as caught:
        load(tmp_path, {name: text}, name, None)

    described = describe_failure(caught.value)

    assert (described["kind"], described["trace"]) == ("runtime_error", "")
    assert words in described["text"]


#: Texts that Python does not compile, each for another reason; several are no syntax errors to it.
NO_PYTHON = {
    "no syntax": b"def f(:\n",
    "a null byte": b"x = 1\0\n",
    "no UTF-8": b"x = '\xff'\n",
    "an unknown encoding": b"# coding: no-such-encoding\nx = 1\n",
    "nested parentheses": b"x = " + b"(" * 300 + b"1" + b")" * 300,
    "nested blocks": b"".join(b" " * depth + b"if 1:\n" for depth in range(120)) + b" " * 120 + b"pass\n",
    "a long sum": b"x = " + b"+".join([b"1"] * 100_000),
    "a long chain": b"x = a" + b".b" * 100_000,
    "many signs": b"x = " + b"-" * 100_000 + b"1",
    "many lambdas": b"x = " + b"lambda: " * 20_000 + b"1",
    "many branches": b"if 0: pass\n" + b"elif 1: pass\n" * 20_000,
    "many digits": b"x = " + b"9" * 5_000,
}


@pytest.mark.parametrize("text", NO_PYTHON.values(), ids=NO_PYTHON)
def test_what_python_does_not_compile_is_a_compile_error_early_and_in_a_run(
    tmp_path: Path, text: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One text has one verdict, whatever Python raises for it."""
    (tmp_path / "s.py").write_bytes(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["parse", "s.py", "7"])
    assert parse.main() == 7
    early = capsys.readouterr().out

    with pytest.raises(SyntaxError) as caught:
        import_submission(tmp_path, "s.py")

    assert describe_failure(caught.value) == failed("compile_error", early)
