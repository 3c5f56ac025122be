"""The configuration: where values come from, what is refused, and that no password is ever shown."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from runner.base import config as config_module
from runner.base.config import Config, HttpAddress
from runner.base.environment import notify_socket, watchdog_s
from runner.base.errors import ConfigError
from runner.cli.app import load_config
from runner.extras.config import SiteConfig
from tests.unit.config.page import PAGE, examples, page

#: What no reader of TOML takes, or Python holds.
UNREADABLE = ("hidden", "lease_s = ", f"lease_s = {'9' * 5000}", f"slots = {'[' * 5000}{']' * 5000}")


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., SiteConfig]:
    """Load this text as the file, with these variables as the whole environment."""

    def _load(text: str = "", **environ: str) -> SiteConfig:
        path = tmp_path / "config.toml"
        path.write_text(text, encoding="utf-8")
        return SiteConfig.load(path, environ=environ)

    return _load


def test_the_page_is_what_the_model_says() -> None:
    """docs/configuration.md has every key, with its description, examples and default."""
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tests.unit.config.page`"


def test_every_file_and_example_of_the_page_loads(load: Callable[..., SiteConfig]) -> None:
    """Those of the introduction, too. An example alone loads, and its value is another than the default."""
    blocks = re.findall(r"^```toml\n(.*?)```", page(), flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 3
    for block in blocks:
        load(block)
    for key in SiteConfig.model_fields:
        for example in examples(key):
            assert getattr(load(example), key) != getattr(load(), key), key


@pytest.mark.parametrize(
    ("environ", "key", "value"),
    [
        ({"KERNEL_RUNNER_DATABASE_URL": "postgresql://h/d"}, "database_url", "postgresql://h/d"),
        ({"DATABASE_URL": "postgresql://h/d"}, "database_url", "postgresql://h/d"),
        # The more specific of the two.
        ({"DATABASE_URL": "shared", "KERNEL_RUNNER_DATABASE_URL": "ours"}, "database_url", "ours"),
        ({"DOCKER_HOST": "unix:///x"}, "docker_host", "unix:///x"),
        # An empty one counts as absent, as for Docker.
        ({"DOCKER_HOST": ""}, "docker_host", "unix:///file"),
        ({"KERNEL_RUNNER_LEASE_S": ""}, "lease_s", 90.0),
        ({"KERNEL_RUNNER_STATE_DIR": "/x"}, "state_dir", Path("/x")),
        ({"KERNEL_RUNNER_CPU_SLOTS": "3"}, "cpu_slots", 3),
        ({"KERNEL_RUNNER_CPU_SLOTS": "auto"}, "cpu_slots", "auto"),
        ({"KERNEL_RUNNER_LEASE_S": "45"}, "lease_s", 45.0),
        ({"KERNEL_RUNNER_LOG_FORMAT": "json"}, "log_format", "json"),
        # A daemon under test inherits the suite's own.
        ({"KERNEL_RUNNER_TEST_DATABASE_URL": "x"}, "database_url", "file"),
    ],
)
def test_a_key_is_overridden_by_its_variable(
    load: Callable[..., SiteConfig], environ: dict[str, str], key: str, value: object
) -> None:
    """The environment wins over the file, and is read as the key's type."""
    text = 'cpu_slots = 9\nlease_s = 90\ndatabase_url = "file"\ndocker_host = "unix:///file"'
    assert getattr(load(text, **environ), key) == value


@pytest.mark.parametrize("blank", ["\r", "\n", " ", "\t"])
def test_blanks_around_a_variable_do_not_count(load: Callable[..., SiteConfig], blank: str) -> None:
    """As a file of variables from Windows has them; blanks alone are no value. A list is one variable, in JSON."""
    slots = f'[{{"gpu_type": "H100", "devices": [0], "cpus": [1, 2]}}]{blank}'
    names = {"KERNEL_RUNNER_LOG_LEVEL": f"{blank}debug", "DOCKER_HOST": blank, "KERNEL_RUNNER_SLOTS": slots}
    config = load(DATABASE_URL=f"postgresql:///d{blank}", **names)
    assert (config.database_url, config.log_level, config.docker_host) == ("postgresql:///d", "debug", None)
    assert config.slots != "auto"
    assert [(slot.gpu_type, slot.devices, slot.cpus) for slot in config.slots] == [("H100", ("0",), (1, 2))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("leases = 3", r"config\.toml: key 'leases' is not known, the nearest valid key is 'lease_s'"),
        ("lease_s = 'x'", r"config\.toml: lease_s: found 'x', expected: .*number"),
        ("lease_s = 10", "heartbeat_s=5 and lease_s=10: expected heartbeat_s to be at most a third"),
        ("max_run_s = true", "max_run_s: found True, expected: a text, a number or a list"),
        ("drain_timeout_s = inf", "drain_timeout_s: found inf, expected: .*finite"),
        ("cpu_slots = 'all'", "cpu_slots: found 'all', expected: .*'auto'"),
        ("slots = [{gpu_type = 'CPU', cores = [1]}]", r"slots\[0\]\.cores is not known, the nearest valid key is"),
        ("slots = [{cpus = [1]}]", r"slots\[0\]\.gpu_type: found nothing, .*required"),
        ("state_dir = 'x'", "state_dir: found 'x', expected: an absolute path"),
        ("http_listen = 9469", "http_listen: found 9469, expected: a text"),
        ("http_listen = '9469'", 'http_listen: found \'9469\', expected: "unix:PATH" .*"HOST:PORT"'),
        ("http_listen = 'localhost:66000'", "http_listen: found 'localhost:66000', expected: .*from 0 to 65535"),
        *(
            (f"gateway_public_url = 'https://x.example/{path}'", "gateway_public_url: found .*without a path, since")
            for path in ("kernels", "kernels/", "a/b")
        ),
        *(
            (f"{key} = '{text}'", f"{key}: found .*, expected: addresses and networks, separated by commas")
            for key in ("gateway_trusted_proxies", "webhook_private_networks")
            for text in ("proxy.example", "10.0.1.5/24", "10.0.0.1;10.0.0.2", "10.0.0.1:80", "[::1]", "10.0.0.1, *")
        ),
        ("gateway_public_url = 'x.example'", "gateway_public_url: found 'x.example', expected: .*"),
        *((text, r"config\.toml: not a TOML file") for text in UNREADABLE),
    ],
)
def test_a_wrong_value_is_refused_with_key_found_and_expected(
    load: Callable[..., SiteConfig], text: str, message: str
) -> None:
    """Every mistake names the file, the key, what was found and what would be right."""
    with pytest.raises(ConfigError, match=message):
        load(text)


@pytest.mark.parametrize(
    ("webhooks", "secrets", "message"),
    [
        ("{name = 'a', format = 'slack'}", "", r"webhook 'a': expected one `url`"),
        ("{name = 'a', format = 'slack', url = 'http://x'}", "a.url = 'http://y'", r"webhook 'a': expected one `url`"),
        ("{name = 'a', format = 'json', url = 'http://x'}", "", "has format 'json': expected a `secret`"),
        ("{name = 'a', format = 'slack', url = 'http://x'}", f"a.secret = 'whsec_{'x' * 40}'", "has format 'slack'"),
        ("{name = 'a', format = 'json', url = 'http://x'}", "a.secret = 'hidden'", r"webhook_secrets: a\.secret: "),
        *(
            (
                "{name = 'a', format = 'json', url = 'http://x'}",
                f"a.secret = 'whsec_{key}'",
                r"a\.secret: expected whsec_ and 24 to 64",
            )
            for key in ("x" * 31, "x" * 33, "x" * 35, "x" * 32 + "=", "x" * 92)
        ),
        ("{name = 'a', format = 'slack', url = 'http://x'}", "b.url = 'http://y'", "has 'b', expected names of .*: a"),
        *(("{name = 'a', format = 'slack', url = 'http://x'}", text, "is not a TOML file") for text in UNREADABLE),
        ("{name = 'a', format = 'slack'}", "a = 'hidden'", r"found a value, expected a\.url = "),
        ("{name = 'a', format = 'slack', url = 'hidden'}", "", r"webhooks\[0\]\.url: found a value that is not shown"),
        (
            "{name = 'a', format = 'slack', url = 'http://x'}, {name = 'a', format = 'slack'}",
            "",
            "webhooks: .*each name once",
        ),
        ("{format = 'slack', url = 'http://x'}", "", r"webhooks\[0\]\.name: found a value that is not shown"),
        ("'hidden'", "", r"webhooks\[0\]: found a value that is not shown"),
    ],
)
def test_webhooks_and_their_secrets_fit_together(
    load: Callable[..., SiteConfig], tmp_path: Path, webhooks: str, secrets: str, message: str
) -> None:
    """No error shows an address or a secret."""
    (tmp_path / "secrets").write_text(secrets, encoding="utf-8")
    with pytest.raises(ConfigError, match=message) as caught:
        load(f"webhooks = [{webhooks}]\nwebhook_secrets_file = '{tmp_path}/secrets'").webhook_secrets({})
    assert "hidden" not in str(caught.value)
    assert "http://" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("PORT", "tcp://10.0.0.1:8000"), ("SERVICE_HOST", "10.0.0.1"), ("SERVICE_PORT", "8000")),
        *(("SERVICE_PORT_HTTP", "8000"), ("PORT_8000_TCP", "tcp://[fd00::1]:8000"), ("PORT_8000_TCP_ADDR", "fd00::1")),
        *(("GATEWAY_PORT", "udp://10.0.0.1:8000"), ("GATEWAY_SERVICE_HOST", "10.0.0.1")),
    ],
)
def test_a_service_of_our_name_is_no_setting(load: Callable[..., SiteConfig], name: str, text: str) -> None:
    """Kubernetes sets such variables in all containers beside it."""
    assert load(**{f"KERNEL_RUNNER_{name}": text}).lease_s == 25.0


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("POL_S", "1", r"KERNEL_RUNNER_POL_S is not known, the nearest valid one is .*_POLL_S"),
        # No service's address: someone believes to have set it.
        ("GATEWAY_PORT", "8000", "is not known"),
        ("METRICS_PORT", "8000", "is not known"),
        ("SLOTS", "[nonsense", "KERNEL_RUNNER_SLOTS is not JSON"),
    ],
)
def test_a_wrong_variable_is_refused(load: Callable[..., SiteConfig], name: str, text: str, message: str) -> None:
    """A typo in a unit file is found at start-up, not in production."""
    with pytest.raises(ConfigError, match=message):
        load(**{f"KERNEL_RUNNER_{name}": text})


def test_a_named_file_must_exist_and_the_default_one_need_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--config typo.toml` is an error; a host configured by its environment alone is not."""
    with pytest.raises(ConfigError, match="no such configuration file"):
        Config.load(tmp_path / "typo.toml", environ={})
    with pytest.raises(ConfigError, match="no such configuration file"):
        Config.load(environ={"KERNEL_RUNNER_CONFIG": str(tmp_path / "typo.toml")})
    monkeypatch.setattr(config_module, "DEFAULT_PATH", tmp_path / "absent.toml")
    assert Config.load(environ={}).lease_s == 25.0
    monkeypatch.setattr(config_module, "DEFAULT_PATH", tmp_path / "there.toml")
    (tmp_path / "there.toml").write_text("lease_s = 99", encoding="utf-8")
    assert Config.load(environ={}).lease_s == 99.0
    # One that is there and cannot be read is not passed over.
    monkeypatch.setattr(config_module, "DEFAULT_PATH", tmp_path)
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        Config.load(environ={})


def test_the_password_is_in_no_text_a_person_or_log_may_see(load: Callable[..., SiteConfig]) -> None:
    """Neither repr, str, the public form nor an error shows it."""
    loaded = load(DATABASE_URL="postgresql://runner:hunter2@db/x")
    assert loaded.database_url == "postgresql://runner:hunter2@db/x"
    for text in (repr(loaded), str(loaded), str(loaded.public())):
        assert "hunter2" not in text
    assert loaded.public()["database_url"] == "postgresql://runner:***@db/x"
    with pytest.raises(ConfigError) as caught:
        load('database_url = ["postgresql://runner:hunter2@db/x"]')
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_serving_needs_an_executable_interpreter(load: Callable[..., SiteConfig], tmp_path: Path) -> None:
    """Absent, out of reach, missing and not executable are four different mistakes."""
    python = tmp_path / "python"
    config = load(KERNEL_RUNNER_EVAL_PYTHON=str(python))
    with pytest.raises(ConfigError, match="eval_python is not set"):
        load().require_eval_python()
    denied = PermissionError(errno.EACCES, "Permission denied")
    with patch.object(Path, "is_file", side_effect=denied), pytest.raises(ConfigError, match="Permission denied"):
        config.require_eval_python()
    with pytest.raises(ConfigError, match="no such file"):
        config.require_eval_python()
    python.write_text("#!/bin/sh\n", encoding="ascii")
    with pytest.raises(ConfigError, match="not executable"):
        config.require_eval_python()
    python.chmod(0o755)
    assert config.require_eval_python() == python


def test_what_the_service_manager_says_is_read_here() -> None:
    """An empty socket means: no listener. What it started inherits no watchdog's period to its children."""
    assert notify_socket({"NOTIFY_SOCKET": "/run/x"}) == "/run/x"
    assert notify_socket({"NOTIFY_SOCKET": ""}) is notify_socket({}) is None
    period = {"WATCHDOG_USEC": "20000000"}
    assert watchdog_s(period) == watchdog_s({**period, "WATCHDOG_PID": str(os.getpid())}) == 20.0
    for other in ({**period, "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "x"}, {}):
        assert watchdog_s(other) is None


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("unix:http.sock", HttpAddress(path=Path("/s/http.sock"))),
        ("unix:/run/x.sock", HttpAddress(path=Path("/run/x.sock"))),
        ("127.0.0.1:9469", HttpAddress(host="127.0.0.1", port=9469)),
        ("[::1]:0", HttpAddress(host="::1", port=0)),
        ("off", None),
    ],
)
def test_where_health_is_served(load: Callable[..., SiteConfig], text: str, address: HttpAddress | None) -> None:
    """A socket, below state_dir if its path is relative; a port; nowhere. It is written as it was read."""
    found = load(f"state_dir = '/s'\nhttp_listen = '{text}'").http_address
    assert found == address
    if found is not None:
        assert HttpAddress.parse(str(found), directory=Path("/other")) == found


def test_the_address_may_come_from_systemd_or_from_a_file_of_its_own(
    load: Callable[..., SiteConfig], tmp_path: Path
) -> None:
    """The environment wins over the credential, that over the file's key, and that over the file that a key names."""
    credentials, secret = tmp_path / "credentials", tmp_path / "secret"
    credentials.mkdir()
    secret.write_text("postgresql://file/d\n", encoding="utf-8")
    (credentials / "database_url").write_text("postgresql://credential/d\n", encoding="utf-8")
    here, named = {"CREDENTIALS_DIRECTORY": str(credentials)}, f"database_url_file = '{secret}'"
    assert load(named, **here, DATABASE_URL="postgresql://shared/d").database_url == "postgresql://shared/d"
    assert load("database_url = 'postgresql://key/d'", **here).database_url == "postgresql://credential/d"
    assert load(f"database_url = 'postgresql://key/d'\n{named}").database_url == "postgresql://key/d"
    assert load(named).database_url == "postgresql://file/d"
    # The unit's placeholder for hosts without the file.
    (credentials / "database_url").write_text("", encoding="utf-8")
    assert load(named, **here).database_url == "postgresql://file/d"


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read: No such file"), (b"", "is empty: expected one line"), (b"\xff", "found no text")],
)
def test_a_missing_secret_is_an_error_only_where_it_is_needed(
    load: Callable[..., SiteConfig], tmp_path: Path, content: bytes | None, message: str
) -> None:
    """Commands that need no database work for users who may not read the file."""
    secret = tmp_path / "secret"
    if content is not None:
        secret.write_bytes(content)
    loaded = load(f"database_url_file = '{secret}'")
    assert loaded.database_url is None
    with pytest.raises(ConfigError, match=message):
        loaded.require_database_url()


def test_a_wrong_key_of_a_guest_is_an_error_in_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What commands load has the keys of guests, though the core imports none.

    Where guests are not installed, one of their keys is as unknown as any other.
    """
    path = tmp_path / "config.toml"
    for text, message in (
        ("gateway_conections = 4", "the nearest valid key is 'gateway_connections'"),
        ("gateway_listen = 'off'", "off"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=message):
            load_config(path, environ={})
    path.write_text("gateway_connections = 4", encoding="utf-8")
    monkeypatch.setitem(sys.modules, "runner.extras.config", None)
    with pytest.raises(ConfigError, match="'gateway_connections' is not known"):
        load_config(path, environ={})
