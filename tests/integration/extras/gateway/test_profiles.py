"""Profiles over HTTP: which forms are refused, and what the submission's page shows and hands out."""

from __future__ import annotations

import base64

import pytest

from runner.base.model import Artifact, Verdict
from tests.integration.extras.gateway.conftest import Answer, Gate, multipart
from tests.integration.extras.gateway.test_pages import LARGEST, Browser
from tests.integration.store.conftest import TASK, result, run_record

#: Characters that shells, JSON and HTML read.
NAME = "regex:<b>'\"$(x);\\"


@pytest.fixture
def boards(gate: Gate) -> Gate:
    """Leaderboards on an NVIDIA type and on another one."""
    gate.sql("INSERT INTO runner.gpu_type (name, vendor) VALUES ('H100', 'nvidia'), ('MI300', 'amd')")
    gate.bench.board("captured", "H100", "MI300")
    gate.bench.board("ranks", "H100", task={**TASK, "multi_gpu": True})
    return gate


def send(gate: Gate, path: str = "/profile/captured/H100", cli: str | None = "ada-token", **fields: str) -> Answer:
    """What `popcorn submit --profile` sends."""
    body, headers = multipart(fields=fields)
    return gate.ask("POST", path, body, cli=cli, headers=headers)


BAD_FORMS = [
    ("captured/H100", {"benchmark_index": "1"}, 400, "there is no benchmark 1 on H100"),
    ("captured/H100", {"benchmark_index": "-1"}, 422, "Input should be from 0 to"),
    ("captured/H100", {"benchmark_index": "first"}, 422, "Input should be a valid integer"),
    ("captured/H100", {"ncu_launch_count": "0"}, 422, "Input should be from 1 to"),
    ("captured/H100", {"ncu_launch_count": "1.5"}, 422, "Input should be a valid integer"),
    ("captured/H100", {"ncu_kernel_name_base": "name"}, 400, "expected function, demangled or mangled"),
    ("captured/H100", {"ncu_kernel_name": ""}, 400, "expected a name, or regex: and an expression"),
    ("captured/H100", {"ncu_kernel_name": "a" * 1025}, 400, "of 1 to 1024 characters"),
    ("captured/H100", {"ncu_kernel_name": "a\0b"}, 400, "ncu_kernel_name has a NUL character"),
    ("captured/MI300", {}, 400, "tasks of one NVIDIA device, not this task on MI300"),
    ("ranks/H100", {}, 400, "tasks of one NVIDIA device, not this task on H100"),
    ("captured/T4", {}, 400, "GPU type 'T4' is not offered"),
    ("nothing/H100", {}, 404, "nothing"),
]


def test_a_bad_form_is_refused_and_nothing_is_stored(boards: Gate) -> None:
    """With a sentence that names what is wrong; so is one without a token, or with a wrong one."""
    assert [send(boards, cli=cli).status for cli in (None, "wrong")] == [400, 401]
    for path, fields, status, says in BAD_FORMS:
        answer = send(boards, f"/profile/{path}", **fields)
        assert answer.status == status, answer.text
        assert says in (answer.text if status == 422 else answer.detail)
        assert boards.sql("SELECT count(*) FROM leaderboard.submission") == [(0,)]


def test_the_page_shows_the_report_and_hands_out_the_files(boards: Gate) -> None:
    """To the author and to no other user; a text in it stays text, and a file is never shown in the browser."""
    options = {"benchmark": 0, "kernel": NAME, "kernel_base": "function", "launches": 10}
    place = {"leaderboard": "captured", "gpu_types": ["H100"]}
    number = boards.bench.submit(**place, user_id="ada", mode="profile", options=options)
    assert boards.sql("SELECT options FROM runner.job") == [(options,)]
    text = "Duration <script>us</script> 3.20" + "x" * 100_000
    found = {"spec": "size: 8", "report": base64.b64encode(text.encode()).decode()}
    timed = {f"benchmark.0.{name}": value for name, value in found.items()}
    row = run_record("profile.0", result={"benchmark-count": "1", **timed, "check": "pass"})
    files = tuple(
        Artifact(name=f"profile.0.{suffix}", media_type="text/html", data=suffix.encode())
        for suffix in ("ncu-rep", "ncu-details.txt", "ncu-details.csv")
    )
    boards.bench.store.complete(boards.bench.claim("H100"), result(Verdict.ACCEPTED, row, artifacts=files))
    ada, bob = Browser(boards, "ada-token"), Browser(boards, "bob-token")
    page = ada.get(f"/view/{number}").text
    assert "Duration &lt;script&gt;us" in page
    assert len(page.encode()) < LARGEST
    for file in files:
        link = f"/view/{number}/profile/H100/{file.name}"
        assert f'href="{link}"' in page
        answer = ada.get(link)
        assert (answer.status, answer.body) == (200, file.data)
        saved = {"content-disposition": f'attachment; filename="submission-{number}.{file.name}"'}
        assert {"content-type": "application/octet-stream", **saved}.items() <= answer.headers.items()
        assert bob.get(link).status == 403
    assert ada.get(f"/view/{number}/profile/H100/other").status == 404
