"""Reading the files a person names on the command line, with errors that a person understands."""

from __future__ import annotations

from pathlib import Path

from runner.base.errors import SubmissionError
from runner.base.marks import without_mark

#: The largest submission the database takes; a bigger file is not even read.
MAX_SUBMISSION_BYTES = 1_000_000


def read_submission(path: Path) -> bytes:
    """The bytes of a submission; whether they are acceptable is the database's decision.

    Raises:
        SubmissionError: it cannot be read, or is far from acceptable in size.
    """
    try:
        with path.open("rb") as stream:
            code = stream.read(MAX_SUBMISSION_BYTES + 1)
    except OSError as error:
        raise SubmissionError(f"{path}: {error.strerror}") from error
    if len(code) > MAX_SUBMISSION_BYTES:
        raise SubmissionError(f"{path}: {path.stat().st_size} bytes, a submission has at most {MAX_SUBMISSION_BYTES}")
    return without_mark(code)
