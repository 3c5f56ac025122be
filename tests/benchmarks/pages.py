"""What the pages weigh and how soon they show something, in Chromium: bytes, requests, and the time to the first line.

A real gateway in a process of its own before a PostgreSQL of its own, with a leaderboard on which a thousand users
rank, and one more with a hundred scores. Each page is loaded once before it is measured, then in browsers with empty
caches: the time is the median, from the request to the first line of its ranking, table, result or template. Needs
Chromium and the extra `browser`, as `make test-nightly` installs them.
"""

from __future__ import annotations

import importlib.util
import shutil
import statistics
from typing import Any, Final

import psycopg

from runner.extras.boards.store import BoardStore
from runner.extras.gateway.identity import digest
from tests.benchmarks._live import database
from tests.benchmarks.watching import fill, gateway
from tests.integration.store.conftest import Bench, ranked

ROUNDS: Final = 7
#: What a page may load at most.
MOST_BYTES: Final = 150_000
TOKEN: Final = "a-token-of-the-benchmark"
#: A page, and what is waited for.
PAGES: Final = {
    "home": ("/", ".cards tbody tr"),
    "board": ("/board/identity?gpu=CPU", ".ranking tbody tr"),
    "submission": ("/view/{submission}", "#result section"),
    "live": ("/board/identity/live?gpu=CPU", "#live tbody tr"),
    "editor": ("/send?board=identity&gpu=CPU", ".area .lines:not(:empty)"),
}
_SHOWN: Final = """
(() => {
  const look = () => {
    if (document.querySelector(%r)) window.firstLineMs = performance.now();
    else requestAnimationFrame(look);
  };
  look();
})()
"""


def main() -> None:
    """Measure and print.

    Raises:
        RuntimeError: a page is too large.
    """
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None or importlib.util.find_spec("playwright") is None:
        print("needs Chromium and the extra `browser`: make test-nightly installs them")
        return
    from playwright.sync_api import sync_playwright

    with database("pages") as url, gateway(url) as (port, _), sync_playwright() as started:
        submission = _fill(url)
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        base = f"http://127.0.0.1:{port}"
        cookies = _cookies(browser, base)
        for name, (path, line) in PAGES.items():
            loads = [
                _load(browser, cookies, base + path.format(submission=submission), line) for _ in range(ROUNDS + 1)
            ][1:]
            loaded_bytes, requests = loads[0][:2]
            shown_ms = statistics.median(load[2] for load in loads)
            print(f"{name}: {loaded_bytes / 1e3:.0f} kB in {requests} requests, first line after {shown_ms:.0f} ms")
            if loaded_bytes > MOST_BYTES:
                raise RuntimeError(f"page {name}: loads {loaded_bytes} bytes, expected at most {MOST_BYTES}")
        browser.close()


def _fill(url: str) -> int:
    """The leaderboard; the id of the user's newest submission."""
    bench = Bench(store=BoardStore(url, application_name="kernel-runner bench"), url=url)
    bench.board()
    fill(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO leaderboard.user_info (id, user_name, cli_id, cli_valid) VALUES ('u1', 'Ada', %s, true)",
            [digest(TOKEN)],
        )
    submission_id = 0
    for number in range(100):
        submission_id = bench.submit(mode="leaderboard", code=f"# {number}\n".encode() * 40)
        for _ in range(2):
            job = bench.claim()
            bench.store.complete(job, ranked(job, 1e-3 / (number + 1)))
    bench.store.close()
    return submission_id


def _cookies(browser: Any, base: str) -> list[Any]:  # noqa: ANN401 - of the extra `browser`
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{base}/login")
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{base}/")
    cookies: list[Any] = context.cookies()
    context.close()
    return cookies


def _load(browser: Any, cookies: list[Any], url: str, line: str) -> tuple[int, int, float]:  # noqa: ANN401 - as above
    """Bytes on the wire, requests, and milliseconds to the first line; streams count until then."""
    context = browser.new_context()
    context.add_cookies(cookies)
    page = context.new_page()
    wire = context.new_cdp_session(page)
    got: list[int] = []
    requests: list[str] = []
    wire.on("Network.loadingFinished", lambda event: got.append(int(event["encodedDataLength"])))
    wire.on("Network.requestWillBeSent", lambda event: requests.append(event["requestId"]))
    wire.send("Network.enable")
    page.add_init_script(_SHOWN % line)
    page.goto(url, wait_until="load")
    page.wait_for_function("window.firstLineMs")
    shown_ms = float(page.evaluate("window.firstLineMs"))
    context.close()
    return sum(got), len(requests), shown_ms
