"""No secret is in the text of a record: texts of records go into logs, tracebacks and other programs' stores."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import re
from typing import Final

import pytest
from pydantic import BaseModel

import runner
import sandbox
from runner.extras.trainers.kernelbook.asking import Endpoint
from runner.extras.trainers.kernelbook.settings import Settings

_SECRET: Final = re.compile(
    r"(^|_)(api_key|key|token|password|secret|credential|dsn|url|urls|seed|csrf|cookie|verifier|variables)(_|$)"
)
#: Fields with such a name that hold no secret, and what they hold.
OPEN: Final = {
    "Change.key": "a key of a configuration",
    "Endpoint.urls": "addresses without a login",
    "Gateway.url": "an address without a login",
    "HostKey.key": "a public key",
    "HostRecord.key": "a public key",
    "Item.key": "what a caller calls an item",
    "Provider.authorize_url": "a public address",
    "Provider.name_key": "a key of an answer",
    "Provider.person_url": "a public address",
    "Provider.token_url": "a public address",
    "Receipt.key": "a public key",
    "Result.key": "what a caller calls an item",
    "Result.secret_run_passed": "whether it passed",
    "Rule.key": "a key of an engine's settings",
    "Service.url": "an address without a login",
    "Share.url": "an address without a login",
    "Task.seed": "the seed of public runs",
    # Paths and addresses of a configuration.
    "Config.database_url_file": "a path",
    "SiteConfig.database_url_file": "a path",
    "SiteConfig.discord_publish_url_file": "a path",
    "SiteConfig.discord_token_file": "a path",
    "SiteConfig.gateway_admin_token_file": "a path",
    "SiteConfig.gateway_discord_secret_file": "a path",
    "SiteConfig.gateway_discord_url": "a public address",
    "SiteConfig.gateway_github_secret_file": "a path",
    "SiteConfig.gateway_github_url": "a public address",
    "SiteConfig.gateway_public_url": "a public address",
    "SiteConfig.gateway_publish_url_file": "a path",
    "StoredProgramDocument.seed": "the seed of public runs",
    "StoredTaskDocument.seed": "the seed of public runs",
    "TaskCommon.seed": "the seed of public runs",
    "TaskDocument.seed": "the seed of public runs",
}


def shown_fields() -> set[str]:
    """Fields of all records whose name says that they may be secret, and that the record's text shows."""
    modules = [
        importlib.import_module(module.name)
        for package in (runner, sandbox)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not re.search(r"\.(shipped|inside|image)\.", module.name)
    ]
    found: set[str] = set()
    for kind in {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}:
        if not str(kind.__module__).startswith(("runner.", "sandbox.")):
            continue
        if dataclasses.is_dataclass(kind):
            shown = [
                field.name for field in dataclasses.fields(kind) if field.repr and field.type not in (bool, "bool")
            ]
        elif issubclass(kind, BaseModel):
            shown = [name for name, field in kind.model_fields.items() if field.repr]
        else:
            continue
        found |= {f"{kind.__name__}.{name}" for name in shown if _SECRET.search(name)}
    return found


@pytest.mark.filterwarnings("ignore")
def test_a_field_that_may_hold_a_secret_is_not_shown() -> None:
    """A new one is hidden, or is named above with what it holds."""
    assert shown_fields() == OPEN.keys()


def test_the_keys_of_the_pipeline_are_not_shown() -> None:
    """They go to a cluster within records."""
    endpoint = Endpoint(urls=["http://a/v1"], api_key="sk-secret", model="m")
    settings = Settings(variables={"PRIME_API_KEY": "sk-secret", "HF_TOKEN": "hf-secret"})
    assert "secret" not in repr(endpoint) + repr(settings)
