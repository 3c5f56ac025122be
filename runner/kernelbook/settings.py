"""The variables of the pipeline, from the environment or from a file `.env`, under the names of its published scripts.

The environment wins over the file. Only what a step uses is looked at, so a step runs without the variables of others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.errors import ConfigError

from .asking import PRIME_URL, Endpoint

TEST_ROWS = 5
_YES = ("1", "true", "yes", "on")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the environment says."""

    variables: Mapping[str, str]

    @classmethod
    def load(cls, file: Path = Path(".env")) -> Settings:
        """Read the environment and the file, if there is one.

        Raises:
            ConfigError: the file cannot be read.
        """
        from dotenv import dotenv_values

        try:
            values = {name: value for name, value in dotenv_values(file).items() if value is not None}
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {file}: {error}") from error
        return cls(variables={**values, **os.environ})

    def get(self, name: str) -> str | None:
        """A variable; None: not set, or empty."""
        return self.variables.get(name, "").strip() or None

    def number(self, name: str, default: float) -> float:
        """A variable that is a number.

        Raises:
            ConfigError: it is none.
        """
        text = self.get(name)
        try:
            return default if text is None else float(text)
        except ValueError:
            raise ConfigError(f"{name} is {text!r}, expected a number") from None

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
            ConfigError: see `number`.
        """
        urls = (self.get("PRIME_BASE_URL") or "").split(",")
        return Endpoint(
            urls=[url.strip().rstrip("/") for url in urls if url.strip()] or [PRIME_URL],
            api_key=self.get("PRIME_API_KEY") or "",
            team_id=self.get("PRIME_TEAM_ID"),
            model=model or self.get("MODEL") or default_model,
            concurrency=max(1, int(self.number("BATCH_SIZE", 256))),
            tries=max(1, int(self.number("MAX_RETRIES", 3))),
        )
