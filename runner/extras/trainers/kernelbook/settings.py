"""The variables of the pipeline, from the environment or from a file `.env`, under the names of its published scripts.

The environment wins over the file. Only what a step uses is looked at, so a step runs without the variables of others.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from runner.base.errors import ConfigError
from runner.base.marks import ENCODING

from .asking import PRIME_URL, Endpoint

TEST_ROWS = 5
_YES = ("1", "true", "yes", "on")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the environment says."""

    variables: Mapping[str, str] = field(repr=False)

    @classmethod
    def load(cls, file: Path = Path(".env")) -> Settings:
        """Read the environment and the file, if there is one.

        Raises:
            ConfigError: the file cannot be read.
        """
        from dotenv import dotenv_values

        try:
            values = {
                name: value for name, value in dotenv_values(file, encoding=ENCODING).items() if value is not None
            }
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {file}: {error}") from error
        return cls(variables={**values, **os.environ})

    def get(self, name: str) -> str | None:
        """A variable; None: not set, or empty."""
        return self.variables.get(name, "").strip() or None

    def number(self, name: str, default: float) -> float:
        """A variable that is a number.

        Raises:
            ConfigError: it is none, or not finite.
        """
        text = self.get(name)
        try:
            number = default if text is None else float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ConfigError(f"{name} is {text!r}, expected a number")
        return number

    @property
    def test_limit(self) -> int | None:
        """The rows that TEST_MODE leaves; None: all."""
        return TEST_ROWS if (self.get("TEST_MODE") or "").lower() in _YES else None

    @property
    def hub_token(self) -> str | None:
        """HF_TOKEN."""
        return self.get("HF_TOKEN")

    def endpoint(self, *, model: str | None, default_model: str) -> Endpoint:
        """Where to ask, by PRIME_BASE_URL, PRIME_API_KEY, PRIME_TEAM_ID, MODEL, BATCH_SIZE and MAX_RETRIES.

        PRIME_BASE_URL may be several addresses, separated by commas.

        Raises:
            ConfigError: see `number`; or an address is none, or a key or team cannot be sent.
        """
        urls = [url.strip() for url in (self.get("PRIME_BASE_URL") or "").split(",") if url.strip()]
        for url in urls:
            if not _is_address(url):
                raise ConfigError(f"PRIME_BASE_URL is {url!r}, expected http(s)://HOST[:PORT]/...")
        return Endpoint(
            urls=[url.rstrip("/") for url in urls] or [PRIME_URL],
            api_key=self._header("PRIME_API_KEY") or "",
            team_id=self._header("PRIME_TEAM_ID"),
            model=model or self.get("MODEL") or default_model,
            concurrency=max(1, int(self.number("BATCH_SIZE", 256))),
            tries=max(1, int(self.number("MAX_RETRIES", 3))),
        )

    def _header(self, name: str) -> str | None:
        # No other characters can be sent. The message does not repeat the text: it may be a key.
        text = self.get(name)
        if text is not None and not (text.isascii() and text.isprintable()):
            raise ConfigError(f"{name} has characters that are no printable ASCII; set it to what the service issued")
        return text


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        # A port that is no number raises.
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return named and parts.scheme in ("http", "https") and url.isprintable() and " " not in url
