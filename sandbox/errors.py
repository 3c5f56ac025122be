"""The sandbox's exceptions.

SandboxError
├── EngineUnavailable   no engine answers, or it lost its connection
├── EngineRefused       the engine answers but would not create or start the container as specified
│   ├── NotThere        it has no such image or container
│   └── NotReaped       containers of an earlier process would not go
├── ProtocolError       the container broke the protocol
└── RootFilesystemError the host's files do not make a usable root file system
"""

from collections.abc import Mapping, Sequence
from typing import Protocol


class Leftover(Protocol):
    """A container that could not be removed and still exists."""

    @property
    def id(self) -> str:
        """The engine's id of the container."""

    def close(self) -> None:
        """Remove the container and check that it is gone.

        Raises:
            SandboxError: it still exists; its devices must not be used until it is gone.
        """


class SandboxError(Exception):
    """Root of the sandbox's errors. They are always the sandbox's own fault, never the submission's."""

    #: The container that could not be removed after this error; None if there is none.
    leftover: Leftover | None = None


class EngineUnavailable(SandboxError):
    """No container engine answers."""


class EngineRefused(SandboxError):
    """The engine refused the container."""


class NotThere(EngineRefused):
    """The engine does not have the image or the container."""


class NotReaped(EngineRefused):
    """Some containers of an earlier process could not be removed; all others were."""

    def __init__(self, message: str, *, left: Sequence[tuple[Leftover, Mapping[str, str]]]) -> None:
        super().__init__(message)
        #: Each container with its labels.
        self.left = tuple(left)


class ProtocolError(SandboxError):
    """The stream from the container does not follow the protocol."""


class RootFilesystemError(SandboxError):
    """The host's files do not make a usable root file system."""
