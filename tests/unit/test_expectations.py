"""What files should have had is said in words of the file's format, whatever key and value are wrong."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from runner.base.errors import ConfigError
from runner.base.gpu_types import GpuType, Registry
from runner.extras.config import SiteConfig

#: Values as TOML; each key refuses some.
VALUES = ("'x y('", "''", "'30s'", "-1", "1e9", "1.5", "nan", "[]", "[{}]", "[[1]]", "['(']", "{}", "{x = 'y'}", "true")
#: How pydantic speaks.
PYTHON = re.compile(r"[Ii]nput|String should|Field required|Value error|tuple|dictionary|instance|object|array|boolean")


def refusals(texts: list[str], path: Path, *, gpu_type: bool) -> list[str]:
    """What a file of each text is refused with."""
    messages = []
    for text in texts:
        path.write_text(text, encoding="utf-8")
        try:
            _ = Registry.load(path.parent) if gpu_type else SiteConfig.load(path, environ={})
        except ConfigError as error:
            messages.append(str(error).replace(str(path), ""))
    return messages


@pytest.mark.parametrize("key", sorted(SiteConfig.model_fields))
def test_a_configuration(tmp_path: Path, key: str) -> None:
    """Every key refuses some of the values, in such words."""
    messages = refusals([f"{key} = {value}" for value in VALUES], tmp_path / "config.toml", gpu_type=False)
    assert len(messages) >= 5
    assert [message for message in messages if PYTHON.search(message)] == []


@pytest.mark.parametrize("key", sorted(field.name for field in dataclasses.fields(GpuType)))
def test_a_gpu_type(tmp_path: Path, key: str) -> None:
    """Every key refuses some of the values, in such words."""
    rest = "\n".join(line for line in ("name = 'X'", "vendor = 'none'") if not line.startswith(f"{key} "))
    messages = refusals([f"{rest}\n{key} = {value}" for value in VALUES], tmp_path / "x.toml", gpu_type=True)
    assert len(messages) >= 5
    assert [message for message in messages if PYTHON.search(message)] == []
