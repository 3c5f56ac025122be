"""The sandbox's exceptions.

SandboxError
├── EngineUnavailable   no engine answers, or it lost its connection
├── EngineRefused       the engine answers but would not create or start the container as specified
│   └── NotReaped       containers of an earlier process would not go
├── ProtocolError       init said something the protocol does not allow
└── RootFilesystemError the host's files do not make a usable root file system
"""

from collections.abc import Mapping, Sequence
from typing import Protocol


class Leftover(Protocol):
    """A container that is still there although it ought not to be."""

    @property
    def id(self) -> str:
        """As the engine knows it."""
        ...

    def close(self) -> None:
        """Remove it and see that it is gone.

        Raises:
            SandboxError: it is not gone; its devices must not be used until it is.
        """
        ...


class SandboxError(Exception):
    """Root of the sandbox's errors: always the sandbox's own fault, never the submission's."""

    #: What could not be removed after it went wrong.
    leftover: Leftover | None = None


class EngineUnavailable(SandboxError):
    """No container engine answers."""


class EngineRefused(SandboxError):
    """The engine refused the container."""


class NotReaped(EngineRefused):
    """Containers of an earlier process would not go; all others have."""

    def __init__(self, message: str, *, left: Sequence[tuple[Leftover, Mapping[str, str]]]) -> None:
        super().__init__(message)
        #: Each with its labels.
        self.left = tuple(left)


class ProtocolError(SandboxError):
    """The stream from the container does not follow the protocol."""


class RootFilesystemError(SandboxError):
    """The host's files do not make a usable root file system."""
