"""The daemon and command line of kernel-runner: claims jobs, evaluates them in sandboxes, writes results."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("kernel-runner")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"
