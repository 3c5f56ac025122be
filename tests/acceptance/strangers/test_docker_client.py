"""Docker's configuration of a user, in every shape that a file can have, beside an engine that works."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from sandbox.errors import EngineRefused
from sandbox.host.engine import DockerEngine

HERE = Path(__file__).parent / "cases" / "docker_client"
WHOLE = (HERE / "config.json").read_text(encoding="utf-8")
#: The file whole, cut, empty, of another encoding, of another kind; None: a directory. Whoever reads it fails at some.
FILES = (WHOLE, WHOLE[:-3], "", "\ufeff{}", "[1]", '{"auths": 5, "credHelpers": "text", "proxies": [1]}', None)


@pytest.mark.parametrize("place", ["home", "named by DOCKER_CONFIG", "older"])
def test_no_file_of_the_users_is_read(
    docker_engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The engine answers with every file there."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DOCKER_CONFIG", raising=False)
    path = tmp_path / (".dockercfg" if place == "older" else ".docker/config.json")
    path.parent.mkdir(exist_ok=True)
    if place == "named by DOCKER_CONFIG":
        monkeypatch.setenv("DOCKER_CONFIG", str(path.parent))
    for text in FILES:
        if text is None:
            path.unlink()
            path.mkdir()
        else:
            if path.is_dir():
                path.rmdir()
            path.write_text(text, encoding="utf-8")
        with DockerEngine(docker_engine.base_url, owner="tests-docker-client") as engine:
            assert engine.check().version, text


def test_a_build_asks_no_program_for_passwords(
    docker_engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's helper is on no other machine, and a build needs no password."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker" / "config.json").write_text(WHOLE, encoding="utf-8")
    recipe = io.BytesIO(b"FROM scratch\nLABEL kernel-runner-test=docker-client\n")
    with DockerEngine(docker_engine.base_url, owner="tests-docker-client") as engine:
        steps = engine._call("build", lambda api: list(api.build(fileobj=recipe, decode=True, rm=True)))
        built = [step["aux"]["ID"] for step in steps if "aux" in step]
        assert len(built) == 1, steps
        engine._call("remove", lambda api: api.remove_image(built[0]))


@pytest.mark.parametrize(
    "variables",
    [
        {"DOCKER_TLS_VERIFY": "1"},
        {"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/nonexistent"},
        {"DOCKER_API_VERSION": "9.99"},
        {"DOCKER_CONTEXT": "elsewhere"},
        {"DOCKER_CONFIG": "/etc/passwd"},
        {"HTTP_PROXY": "http://proxy.example:3128", "ALL_PROXY": "nonsense", "NO_PROXY": ""},
        {"REQUESTS_CA_BUNDLE": "/nonexistent", "CURL_CA_BUNDLE": "/nonexistent"},
        {"HOME": "/nonexistent"},
    ],
    ids=" ".join,
)
def test_variables_for_other_engines_change_nothing(
    docker_engine: DockerEngine, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    """DOCKER_HOST alone names the engine."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DOCKER_HOST", docker_engine.base_url)
    with DockerEngine(owner="tests-docker-client") as engine:
        assert engine.check().version


@pytest.mark.parametrize("address", ["tcp://host:2376", "ssh://host", "fd://", "nonsense", "tcp://host:port", "/run/x"])
def test_an_address_that_is_no_unix_socket_is_refused_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """With TLS, too."""
    monkeypatch.setenv("DOCKER_HOST", address)
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    with pytest.raises(EngineRefused, match=r"engine address is '.*', expected unix:///path"):
        DockerEngine(owner="tests-docker-client")
