"""What the worker makes of a submission's files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.harness.worker.failures import describe_failure
from tasks.harness.worker.submission import LoadFailed, load


@pytest.fixture(autouse=True)
def _imports_end_with_the_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("submission", None)


def test_a_python_submission_is_its_kernel_and_its_files_lie_beside_it(tmp_path: Path) -> None:
    """It may import them, also from folders."""
    files = {
        "kernels/twice.py": "def twice(x):\n    return 2 * x\n",
        "s.py": "from kernels.twice import twice\ndef custom_kernel(data):\n    return twice(data)\n",
    }

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
