"""What cannot be used of the environment is a sentence, whoever makes a client over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub.utils import close_session
from mcp.server.mcpserver.exceptions import ToolError

from runner.base.errors import ConfigError
from runner.extras.config import SiteConfig
from runner.extras.gateway import oauth
from runner.extras.hub import refusals_explained
from runner.extras.mcp.gateway import Gateway
from runner.extras.trainers.kernelbook.asking import Endpoint
from runner.extras.trainers.kernelbook.rows import Source


def gateway(folder: Path) -> None:
    """A gateway that logs people in by GitHub."""
    secret = folder / "secret"
    secret.write_text("s", encoding="utf-8")
    github = {"gateway_github_client_id": "x", "gateway_github_secret_file": secret}
    oauth.providers(SiteConfig.model_validate({"gateway_public_url": "https://kernels.example", **github}))


def agent(_: Path) -> None:
    """An agent's server."""
    asyncio.run(Gateway(url="http://127.0.0.1:9", token=None).read("leaderboards"))


def hub(_: Path) -> None:
    """An upload."""
    with refusals_explained("a/b"):
        pytest.fail("nothing is sent")


def rows(_: Path) -> None:
    """Rows that lie at the hub."""
    Source("a/b", token=None)


def model(_: Path) -> None:
    """Questions to a model."""
    Endpoint(urls=("http://127.0.0.1:9",), api_key="k", model="m").clients()


@pytest.fixture
def no_client() -> Iterator[None]:
    """The hub's library keeps its client."""
    close_session()
    yield
    close_session()


@pytest.mark.usefixtures("no_client")
@pytest.mark.parametrize("make", [gateway, agent, hub, rows, model])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_PROXY", "socks://127.0.0.1:1080"),
        ("HTTPS_PROXY", "ftp://proxy.example"),
        ("http_proxy", "http://proxy.example:3128x"),
        ("SSL_CERT_FILE", "/none.pem"),
        ("SSLKEYLOGFILE", "/none/keys"),
    ],
)
def test_what_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make: Callable[[Path], None], name: str, value: str
) -> None:
    """Before anything is sent, and not as a service that does not answer."""
    monkeypatch.setenv(name, value)
    with pytest.raises((ConfigError, ToolError), match=r"the environment names \(.*cannot be used: .") as raised:
        make(tmp_path)
    assert name.upper() in str(raised.value)
