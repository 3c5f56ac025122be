"""The exceptions of kernel-runner; one root, one class per decision a caller can take.

    KernelRunnerError
    ├── ConfigError            the operator's configuration is wrong: say which key, stop
    ├── TaskError              a task definition is wrong: verdict `invalid`, nothing ran
    ├── SubmissionError        the database refused a submission: show the message to the user
    ├── BoardError             a leaderboard cannot be made, changed or deleted like that: say why, stop
    ├── DataError              a data export cannot be made or read like that: say why, stop
    ├── ReceiptError           a receipt is not to be believed: say why
    ├── SchemaDriftError       the database is not what we rely on: list the differences, touch nothing
    ├── NotFoundError          no such submission, leaderboard, job or GPU type
    ├── StaleAttemptError      the job was taken over or ended by someone else: drop the result
    ├── CancelledByRequest     the evaluation stopped because its cancel event was set: the caller knows why
    └── InfrastructureError    our fault: verdict `internal_error`, the job is retried
        ├── DatabaseUnavailableError
        ├── HostNameTakenError         another daemon goes by this host's name
        ├── EngineUnavailableError     (from sandbox.errors, re-raised at the evaluate layer)
        └── EvaluationError    the container or harness broke in a way the submission cannot cause

Every message says what, which id, what was found, what was expected and how to mend it.
"""

from collections.abc import Sequence


class KernelRunnerError(Exception):
    """Root of every error this project raises on purpose."""


class ConfigError(KernelRunnerError):
    """The configuration is wrong."""


class TaskError(KernelRunnerError):
    """A task definition is wrong."""


class SubmissionError(KernelRunnerError):
    """The submission was refused; the message is for its author."""


class BoardError(KernelRunnerError):
    """A leaderboard cannot be made, changed or deleted as asked."""


class DataError(KernelRunnerError):
    """A data export cannot be made or read as asked; what was there before is untouched."""


class ReceiptError(KernelRunnerError):
    """A receipt is none, or is not to be believed."""


class SchemaDriftError(KernelRunnerError):
    """The database differs from what this project relies on; nothing was changed."""

    def __init__(self, differences: Sequence[str]) -> None:
        self.differences = tuple(differences)
        super().__init__(
            "the database differs from what kernel-runner relies on; nothing was changed. Found:\n"
            + "\n".join(f"  - {difference}" for difference in self.differences)
            + "\nMigrate KernelBot's schema to the version this release supports, or use a database of its own."
        )


class NotFoundError(KernelRunnerError):
    """Nothing with that id or name exists."""


class StaleAttemptError(KernelRunnerError):
    """The job is no longer ours: another attempt claimed it, or it has ended, or (`gone`) there is no such job."""

    def __init__(self, message: str, *, gone: bool = False) -> None:
        super().__init__(message)
        self.gone = gone


class CancelledByRequest(KernelRunnerError):
    """The evaluation stopped because it was asked to; there is no result."""


class InfrastructureError(KernelRunnerError):
    """Something of ours failed; the submission is not to blame and the job is retried."""


class DatabaseUnavailableError(InfrastructureError):
    """PostgreSQL cannot be reached or went away."""


class MissingRightError(DatabaseUnavailableError):
    """The database user may not do this, and waiting does not change that."""


class HostNameTakenError(InfrastructureError):
    """Another daemon, alive, goes by this host's name."""


class EngineUnavailableError(InfrastructureError):
    """The container engine cannot be reached or refused to work."""


class DiskFullError(InfrastructureError):
    """A disk this host works on has less room than its floor, or is read-only."""


class EvaluationError(InfrastructureError):
    """The container or the harness broke in a way that no submission can cause."""
