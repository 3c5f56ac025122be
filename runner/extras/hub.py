"""What the refusals of a hub (Hugging Face) mean for the caller. Needs huggingface_hub, of the extras that use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from huggingface_hub.errors import (
    BadRequestError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    LocalTokenNotFoundError,
)
from huggingface_hub.utils import get_session

from runner.base.errors import ConfigError, DataError, InfrastructureError
from runner.extras.environment import environment_explained

#: Statuses that say who we are, or what we may do, is the trouble.
REFUSED: Final = (401, 403)
_LOG_IN: Final = "log in with `hf auth login`, or set HF_TOKEN to a token with write access"
_AGAIN: Final = "Run it again: what has arrived stays"


def require_environment() -> None:
    """Make the library's client, which it keeps.

    Raises:
        ConfigError: a proxy or certificates of the environment cannot be used.
    """
    with environment_explained():
        get_session()


@contextmanager
def refusals_explained(repository: str) -> Iterator[None]:
    """Turns errors of the library into ours.

    Raises:
        DataError: the name is none of a repository, or the hub refuses files or their card.
        ConfigError: the login is missing, malformed or may not write; or as `require_environment`.
        InfrastructureError: anything else that keeps the hub from doing it.
    """
    require_environment()
    try:
        yield
    except HFValidationError as error:
        raise DataError(f"{repository!r} is no name of a repository: {error}") from error
    except (LocalTokenNotFoundError, UnicodeEncodeError) as error:
        need = "another token, as this one is not ASCII" if isinstance(error, UnicodeEncodeError) else "a login"
        raise ConfigError(f"the hub needs {need}: {_LOG_IN}") from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status in REFUSED:
            raise ConfigError(f"the hub refuses {repository} (status {status}): {_LOG_IN}") from error
        reason = error.server_message or str(error).partition("\n")[0]
        if isinstance(error, BadRequestError):
            raise DataError(f"the hub does not take this for {repository}: {reason}") from error
        raise InfrastructureError(f"{repository} was not published (status {status}: {reason}). {_AGAIN}") from error
    except ValueError as error:
        if not isinstance(error.__cause__, BadRequestError):
            raise
        reason = " ".join(str(error).split())
        raise DataError(f"the hub refuses the card, so {repository} got no file: {reason}") from error
    except (HTTPError, OSError, RuntimeError) as error:
        # The library wraps what happened while it sent a file.
        cause = error.__cause__ if isinstance(error, RuntimeError) else error
        if not isinstance(cause, HTTPError | OSError):
            raise
        raise InfrastructureError(
            f"{repository} was not published ({type(cause).__name__}: {cause}). {_AGAIN}"
        ) from error
