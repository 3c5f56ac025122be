"""The sandbox's exceptions.

SandboxError
├── EngineUnavailable   no engine answers, or it lost its connection
├── EngineRefused       the engine answers but would not create or start the container as specified
├── ProtocolError       the steward said something the protocol does not allow
└── RootFilesystemError the host's files do not make a usable root file system
"""


class SandboxError(Exception):
    """Root of the sandbox's errors: always the sandbox's own fault, never the submission's."""


class EngineUnavailable(SandboxError):
    """No container engine answers."""


class EngineRefused(SandboxError):
    """The engine refused the container."""


class ProtocolError(SandboxError):
    """The stream from the container does not follow the protocol."""


class RootFilesystemError(SandboxError):
    """The host's files do not make a usable root file system."""
