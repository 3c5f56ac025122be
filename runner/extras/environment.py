"""What a client over HTTP reads of its environment, and cannot use, as one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from runner.base.errors import ConfigError


@contextmanager
def environment_explained() -> Iterator[None]:
    """For lines that make a client and do nothing else: what they raise is the environment's.

    Raises:
        ConfigError: a proxy or certificates that it names cannot be used.
    """
    try:
        yield
    except Exception as error:
        raise ConfigError(
            "a proxy or a file of certificates that the environment names (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, "
            f"NO_PROXY, SSL_CERT_FILE, SSLKEYLOGFILE) cannot be used: {error}"
        ) from error
