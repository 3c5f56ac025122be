"""The pages in a real Chromium: axe-core finds nothing, they fit a telephone, and work without a mouse and in the dark.

Needs Chromium and the extra `browser`; `make test-nightly` installs both. `KERNEL_RUNNER_TEST_PICTURES=DIR` keeps
screenshots.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.base.model import Verdict
from tests.integration.extras.gateway.conftest import ADMIN, Gate
from tests.integration.store.conftest import ranked, result, run_record

Finish = Callable[..., None]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.nightly, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")]
SOURCE = b"import torch\n\n\ndef custom_kernel(data):\n    return data[0] + data[1]\n"
WIDTHS = {"desk": (1280, 900), "telephone": (390, 844)}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A headless Chromium."""
    sync = pytest.importorskip("playwright.sync_api")
    with sync.sync_playwright() as started:
        # The sandbox of Chromium needs rights that a container may not have; the pages are ours.
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def fill(gate: Gate) -> None:
    """A board with scores, a submission with cases, output and a failure, a host, and a queue."""
    gate.bench.register("gpu-01", "CPU", "CPU")
    gate.sql("UPDATE leaderboard.user_info SET user_name = 'Grace' WHERE id = 'bob'")
    for number, mean in enumerate((41_000.0, 36_000.0, 36_500.0, 22_000.0, 14_100.0, 12_300.0)):
        gate.submit("/submission/identity/CPU/leaderboard", SOURCE, cli=("ada-token", "bob-token")[number % 2])
        for _ in range(2):
            job = gate.bench.claim()
            fields = {"spec": "n: 16777216; seed: 3", "runs": "64", "runner.timing": "audited", "mean": str(mean)}
            fields |= {"median": str(mean), "best": str(mean * 0.97), "worst": str(mean * 1.2), "sol_limit": "memory"}
            fields |= {"sol": str(9000 / mean), "runner.mean_ci95": f"[{mean * 0.99}, {mean * 1.01}]"}
            timed = {"benchmark-count": "1", **{f"benchmark.0.{name}": value for name, value in fields.items()}}
            meta = {"stdout": "compiled in 3.1 s\n", "stderr": "", "success": True, "exit_code": 0, "duration": 4.0}
            record = run_record("leaderboard", score_s=mean / 1e9, result=timed, meta=meta)
            tested = {"test-count": "2", "test.0.spec": "n: 1024", "test.0.status": "pass"}
            tested |= {"test.1.spec": "n: 1000", "test.1.status": "pass"}
            gate.bench.store.complete(job, result(Verdict.ACCEPTED, run_record("test", result=tested), record))
    gate.sql(
        "UPDATE leaderboard.submission SET submission_time = now() - (7 - id) * interval '1 day';"
        "UPDATE runner.score SET submission_time = now() - (7 - submission_id) * interval '1 day'"
    )
    gate.submit("/submission/identity/CPU/test", SOURCE)
    job = gate.bench.claim()
    failed = {"test-count": "1", "test.0.spec": "n: 1", "test.0.status": "fail", "test.0.error": "mismatch at index 0"}
    record = run_record("test", result=failed, meta={"stdout": "", "stderr": "Traceback …", "exit_code": 112})
    gate.bench.store.complete(job, result(Verdict.WRONG_ANSWER, replace(record, passed=False)))
    gate.submit("/submission/identity/CPU/test", SOURCE)
    finish_a_board(gate)


def finish_a_board(gate: Gate) -> None:
    """A board that has ended: its code is public."""
    gate.bench.board("finished", "A100")
    for number, mean in enumerate((41_000.0, 36_000.0, 12_300.0, 9_100.0)):
        source = SOURCE.replace(b"return", b"# Attempt %d\n    return" % number) + b"\n\nBLOCK = %d\n" % (64 << number)
        gate.rank(("ada", "bob")[number % 2], mean / 1e9, gpu="A100", leaderboard="finished", code=source)
    gate.sql("UPDATE leaderboard.leaderboard SET deadline = now() WHERE name = 'finished'")


def complain(wrong: list[str], path: str, said: Any) -> None:  # noqa: ANN401 - a message of the browser
    """Note an error in the console."""
    if said.type == "error":
        wrong.append(f"{path}: {said.text}")


def stay(wrong: list[str], base: str, sent: Any) -> None:  # noqa: ANN401 - a request of the browser
    """Note what is loaded from elsewhere."""
    if not sent.url.startswith(base):
        wrong.append(f"loads {sent.url}")


def log_in(page: Any, base: str, token: str) -> None:  # noqa: ANN401 - a page of the browser
    """By the form, to the first page."""
    page.goto(f"{base}/login")
    page.get_by_label("Token").fill(token)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{base}/")


#: Page, who looks at it, and under which name its picture is kept.
PAGES = [
    ("/", None, "boards"),
    ("/board/identity", None, "board"),
    ("/board/nothing", None, "error"),
    ("/board/finished", None, "finished"),
    ("/board/finished/winners", None, "winners"),
    ("/entry/12", None, "entry"),
    ("/diff?from=10&to=12", None, "difference"),
    ("/login", None, "login"),
    ("/receipts", None, "receipts"),
    ("/mine", "ada-token", "mine"),
    ("/view/5", "ada-token", "submission"),
    ("/view/7", "ada-token", "failed"),
    ("/send?board=identity&gpu=CPU", "ada-token", "send"),
    ("/board/identity?gpu=CPU&range=week&user=ada&user=bob", None, "trends"),
    ("/live", None, "wall"),
    ("/board/identity/live", None, "live"),
    ("/login/cli", "ada-token", "cli"),
    ("/hosts", ADMIN, "hosts"),
    ("/users", ADMIN, "users"),
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_pages_are_fit_for_all(gate: Gate, chromium: Any, scheme: str, width: str) -> None:  # noqa: ANN401 - a browser
    """No finding of axe, nothing wider than the screen, no error of a script, and nothing loaded from elsewhere."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    fill(gate)
    pictures = os.environ.get("KERNEL_RUNNER_TEST_PICTURES")
    base = f"http://127.0.0.1:{gate.port}"
    wrong: list[str] = []
    for path, token, name in PAGES:
        across, down = WIDTHS[width]
        context = chromium.new_context(viewport={"width": across, "height": down}, color_scheme=scheme)
        page = context.new_page()
        page.on("console", functools.partial(complain, wrong, path))
        page.on("request", functools.partial(stay, wrong, base))
        if token is not None:
            log_in(page, base, token)
        page.goto(f"{base}{path}", wait_until="load")
        found = axe.run(page)
        wrong += [
            f"{path}: {item['id']}: {node['target']}" for item in found.response["violations"] for node in item["nodes"]
        ]
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if wide > 0:
            wrong.append(f"{path}: {wide} pixels too wide")
        if pictures:
            Path(pictures).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=str(Path(pictures) / f"gateway-{name}-{width}-{scheme}.png"), full_page=True)
        context.close()
    # The page that is not there says so in the console.
    assert [line for line in wrong if "404" not in line] == []


def test_a_keyboard_is_enough(gate: Gate, chromium: Any) -> None:  # noqa: ANN401 - a browser
    """From the first key: skip to the content, log in, write code, leave the editor, submit, read the result there."""
    context = chromium.new_context()
    page = context.new_page()
    base = f"http://127.0.0.1:{gate.port}"
    page.goto(f"{base}/login")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.get_by_label("Token").focus()
    page.keyboard.type("ada-token")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{base}/")
    page.goto(f"{base}/send?board=identity&gpu=CPU")
    code = page.get_by_label("Code", exact=True)
    assert code.input_value() == "def custom_kernel(data): ..."
    code.focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("def custom_kernel(data):\nx = data\n")
    page.keyboard.press("Tab")
    page.keyboard.type("return x")
    assert code.input_value().endswith("\n        return x")
    page.keyboard.press("Shift+Tab")
    written = "def custom_kernel(data):\n    x = data\n    return x"
    assert code.input_value() == written
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "gpu"
    page.reload()
    assert code.input_value() == written
    code.focus()
    page.keyboard.press("Control+Enter")
    line = page.locator("#state")
    line.filter(has_text="queued").wait_for()
    job = gate.bench.claim()
    assert job.mode == "test"
    wrong = {"test-count": "1", "test.0.spec": "n: 1", "test.0.status": "fail", "test.0.error": "ERROR AT (0, 1): 1 2"}
    failed = replace(run_record("test", result=wrong), passed=False)
    gate.bench.store.complete(job, result(Verdict.WRONG_ANSWER, failed))
    gate.sql("NOTIFY runner_events, '{\"submissions\": [1]}'")
    page.get_by_role("heading", name="Wrong answer in test 1 of 1").wait_for()
    assert line.inner_text() == "Wrong answer"
    assert page.get_by_role("heading", level=1).count() == 1
    own = context.new_page()
    own.goto(f"{base}/view/1")
    said = "[...document.querySelectorAll('#result h3, #result td, #result pre')].map((node) => node.textContent)"
    assert page.evaluate(said) == own.evaluate(said)
    page.get_by_role("button", name="Back to the template").click()
    assert code.input_value() == "def custom_kernel(data): ..."
    context.close()


def test_a_double_click_and_a_held_key_submit_once(gate: Gate, chromium: Any) -> None:  # noqa: ANN401 - a browser
    """Nor is anything sent again while it is on its way; a click later submits again."""
    context = chromium.new_context()
    page = context.new_page()
    base = f"http://127.0.0.1:{gate.port}"
    log_in(page, base, "ada-token")
    page.goto(f"{base}/send?board=identity&gpu=CPU")

    def stored(number: int) -> None:
        page.wait_for_load_state("networkidle")
        assert gate.sql("SELECT count(*) FROM leaderboard.submission") == [(number,)]

    page.get_by_role("button", name="Test").dblclick(delay=100)
    page.wait_for_timeout(500)
    stored(1)
    page.get_by_label("Code", exact=True).focus()
    page.keyboard.down("Control")
    for _ in range(3):
        page.keyboard.down("Enter")
        page.wait_for_timeout(200)
    page.keyboard.up("Enter")
    page.keyboard.up("Control")
    stored(2)
    page.get_by_role("button", name="Test").click()
    page.wait_for_timeout(500)
    stored(3)
    page.get_by_role("button", name="Test").focus()
    for _ in range(3):
        page.keyboard.down("Enter")
        page.wait_for_timeout(200)
    page.keyboard.up("Enter")
    stored(4)
    context.close()


def test_a_record_that_comes_back_is_not_new(gate: Gate, chromium: Any) -> None:  # noqa: ANN401 - a browser
    """As when the author of the last one is banned."""
    fill(gate)
    page = chromium.new_page()
    page.goto(f"http://127.0.0.1:{gate.port}/live")
    page.locator("[data-key='record 6']").wait_for()
    gate.sql("UPDATE leaderboard.user_info SET is_banned = true WHERE id = 'bob'")
    gate.sql("NOTIFY runner_events, '{\"submissions\": [6]}'")
    page.locator("[data-key='record 5']").wait_for()
    assert page.locator("#news").inner_text() == ""
    assert page.locator("li.new").count() == 0
    page.close()


@pytest.mark.parametrize("path", ["/view/1", "/send?board=identity&gpu=CPU", "/board/identity/live"])
def test_pages_follow_again_after_a_refusal(gate: Gate, chromium: Any, path: str) -> None:  # noqa: ANN401 - a browser
    """As of a proxy whose gateway starts again: a browser itself does not come back then."""
    gate.submit()
    context = chromium.new_context(extra_http_headers={"X-Popcorn-Cli-Id": "ada-token"})
    page = context.new_page()
    page.route("**/events*", lambda route: route.fulfill(status=502, body="Bad Gateway"), times=1)
    page.goto(f"http://127.0.0.1:{gate.port}{path}")
    with page.expect_response(lambda answer: "/events" in answer.url and answer.ok):
        pass
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_wall_follows_the_queue(gate: Gate, chromium: Any, scheme: str) -> None:  # noqa: ANN401 - a browser
    """A record is shown, marked and said as it comes, without motion for who wants none; the time left counts down."""
    fill(gate)
    context = chromium.new_context(
        viewport={"width": 1280, "height": 720}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{gate.port}/board/identity/live")
    page.locator(".facts time").filter(has_text=re.compile(r":[0-5]\d left$")).wait_for()
    job = gate.bench.claim()
    gate.bench.store.complete(job, result(Verdict.ACCEPTED, run_record("test", result={})))
    gate.submit("/submission/identity/CPU/leaderboard", SOURCE + b"# new", cli="bob-token")
    for _ in range(2):
        job = gate.bench.claim()
        gate.bench.store.complete(job, ranked(job, 7e-6))
        gate.bench.store.announce(events=[{"event": "done", "submission_id": job.submission_id}])
    page.locator("#news").filter(has_text="New record: 7.00 µs Grace").wait_for()
    # The ranking is read before the records: one state may have the record alone.
    page.locator("tr.new").wait_for()
    assert page.locator("li.new").count() == 1
    assert page.evaluate("getComputedStyle(document.querySelector('tr.new')).animationName") == "none"
    if pictures := os.environ.get("KERNEL_RUNNER_TEST_PICTURES"):
        for across, down in ((1280, 720), (1920, 1080), (3840, 2160), (390, 844)):
            page.set_viewport_size({"width": across, "height": down})
            page.screenshot(path=str(Path(pictures) / f"gateway-record-{across}-{scheme}.png"))
    context.close()
