"""Certificates, proxies and addresses in the environment that no client of HTTP can use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.cli import main

#: What cannot be used, before anything is asked.
_UNUSABLE = (
    ("SSL_CERT_FILE", "/nonexistent"),
    ("SSL_CERT_FILE", "/proc/self/status"),
    ("SSLKEYLOGFILE", "/nonexistent/keys"),
    ("ALL_PROXY", "ftp://127.0.0.1:1"),
    ("HTTPS_PROXY", "http://[::1"),
    ("HTTP_PROXY", "http://127.0.0.1:port"),
)
#: Names of hosts that cannot be encoded or do not exist.
_HOSTS = (
    "xn--a.b..c",
    "xn--zz--.invalid",
    "a..b",
    f"{'a' * 70}.invalid",
    "é\u0301..x",
    "1.2.3.4.5",
    "[fe80::1%25zz]",
    "a b",
    "a:99999",
)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own with one row, and a key."""
    monkeypatch.chdir(tmp_path)
    row = {"example_id": 0, "prompt": "task 0", "completion": "x = 1", "reward": 1.0}
    Path("rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    for name, value in {
        "PRIME_BASE_URL": "https://127.0.0.1:9/v1",
        "PRIME_API_KEY": "a key",
        "MAX_RETRIES": "1",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(("name", "value"), _UNUSABLE)
def test_what_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    """A usage error, with the variable in its sentence."""
    monkeypatch.setenv(name, value)
    assert main(["kernelbook", "filter", "--input", "rows.jsonl"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert name in said


@pytest.mark.parametrize("host", _HOSTS)
def test_an_odd_host_fails_its_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    """The row fails with a sentence, or the address is refused."""
    monkeypatch.setenv("PRIME_BASE_URL", f"http://{host}/v1")
    assert main(["kernelbook", "filter", "--input", "rows.jsonl"]) in (1, 2)
    assert "Traceback" not in capsys.readouterr().err
