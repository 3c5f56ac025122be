"""KernelGYM's HTTP interface, through a real daemon; only the evaluation itself is a stand-in."""

from __future__ import annotations

import json
from typing import Any

import psycopg
from starlette.testclient import TestClient

from runner.extras.trainers.client import AsyncClient
from runner.extras.trainers.client.kernelgym import build
from tests.integration.daemon.proxy import Proxy
from tests.integration.daemon.rig import Rig


def task(name: str, **found: object) -> dict[str, Any]:
    """A request as KernelGYM's clients send it."""
    says = f"# found: {json.dumps(found)}\n" if found else ""
    return {
        "task_id": name,
        "reference_code": "class Model: pass  # the reference",
        "kernel_code": f"{says}class ModelNew: pass  # {name}",
        "backend": "triton",
        "num_correct_trials": 5,
        "num_perf_trials": 20,
        "num_warmup": 3,
        "timeout": 300,
        "entry_point": "Model",
        "use_reference_cache": True,
        "enable_profiling": True,
    }


def talk(url: str, *requests: tuple[str, str, object], patience_s: float = 60.0) -> list[tuple[int, Any]]:
    """Send requests to the application one after another; status and body of each."""
    with TestClient(build(AsyncClient(url, gpu_type="CPU", patience_s=patience_s))) as http:
        bodies = [body if isinstance(body, bytes) else json.dumps(body).encode() for _, _, body in requests]
        answers = [http.request(how, path, content=body) for (how, path, _), body in zip(requests, bodies, strict=True)]
    return [(answer.status_code, answer.json()) for answer in answers]


def test_what_is_no_fault_of_a_request_is_503(served: Rig) -> None:
    """A key that is none is its sender's; that nothing is taken in now, or the batch was cancelled, is not."""
    key = task("a\0b")
    with psycopg.connect(served.url, autocommit=True) as connection:
        connection.execute("INSERT INTO runner.intake_stop (reason) VALUES ('a backup')")
        answers = talk(served.url, ("POST", "/evaluate", key), ("POST", "/evaluate", task("a")))
        connection.execute("DELETE FROM runner.intake_stop")
    assert [status for status, _ in answers] == [400, 503]
    assert answers[1][1]["detail"] == "no submissions are accepted now: a backup. Try again later."


def test_what_its_clients_send_is_answered(served: Rig) -> None:
    """Alone and in batches, by status and results; bad requests are refused with a sentence."""
    wrong = task("b", verdict="wrong_answer", correct=False, message="off by one")
    decoy = task("c", kernel_use={"custom": 0, "total": 3})
    empty = {**task("e"), "kernel_code": ""}
    answers = talk(
        served.url,
        ("POST", "/evaluate", task("a")),
        ("POST", "/evaluate/batch", {"tasks": [task("a"), wrong, decoy, empty]}),
        ("GET", "/status/b", {}),
        ("GET", "/results/a", {}),
        ("GET", "/results/nothing", {}),
        ("GET", "/health", {}),
        ("POST", "/evaluate", {**task("d"), "kernel_code": None}),
        ("POST", "/evaluate", {**task("d"), "num_correct_trials": 99}),
        ("POST", "/evaluate", {**task("a"), "kernel_code": "class ModelNew: pass  # another"}),
        ("POST", "/evaluate", b"{torn"),
        ("POST", "/evaluate/batch", {"tasks": []}),
        # Numbers of JSON have no type: 5.0 is the five of the first request, 2.5 no number of trials.
        ("POST", "/evaluate", {**task("a"), "num_correct_trials": 5.0, "num_perf_trials": 20.0}),
        ("POST", "/evaluate", {**task("d"), "num_correct_trials": 2.5}),
        ("POST", "/evaluate", {**task("d"), "num_perf_trials": 2.5}),
    )
    first = answers[0][1]
    assert answers[0][0] == 200
    assert {key: first[key] for key in ("task_id", "status", "compiled", "correctness", "speedup", "error_code")} == {
        "task_id": "a", "status": "completed", "compiled": True, "correctness": True, "speedup": 2.0,
        "error_code": None,
    }  # fmt: skip
    assert (first["reference_runtime"], first["kernel_runtime"]) == (0.002, 0.001)
    # Nothing has been profiled, so no share is told, and certainly not 0.
    assert first["metadata"]["custom_kernel_time_share"] is None
    one, two, three, four = answers[1][1]["results"]
    assert one == first
    assert (two["correctness"], two["error_code"], two["error_message"]) == (False, "CORRECTNESS_ERROR", "off by one")
    assert three["decoy_kernel"] is True
    assert (four["correctness"], four["error_code"]) == (False, "VALIDATION_ERROR")
    assert answers[2][1] == {"task_id": "b", "status": "completed"}
    assert answers[3][1] == first
    assert [status for status, _ in answers[4:]] == [404, 200, 400, 400, 400, 400, 400, 200, 400, 400]
    assert answers[11][1] == first
    assert "other content" in answers[8][1]["detail"]
    # Requests that come together share a job.
    assert len(served.evaluator.seen) == 2


def test_an_outage_is_no_answer(proxy: Proxy) -> None:
    """503, so that a client tries again; never a kernel that failed."""
    answers = talk(proxy.url, ("GET", "/health", {}), ("POST", "/evaluate", task("a")), patience_s=0.5)
    assert [status for status, _ in answers] == [503, 503]
