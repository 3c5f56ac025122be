"""The largest pages there can be: every text and every list as long and as hostile as the queue takes it."""

from __future__ import annotations

import html
import re
from functools import partial

from runner.base.model import Verdict
from runner.extras.gateway.live_pages import WALL
from tests.integration.extras.gateway.conftest import ADMIN, Gate
from tests.integration.extras.gateway.test_pages import Browser
from tests.integration.store.conftest import result, run_record

#: Bytes that a page may have, alone and with style and scripts, and as JSON, and statements that it may take.
MOST = 100_000
MOST_LOADED = 150_000
MOST_RECORD = 600_000
STATEMENTS = 10
#: Five bytes of HTML for one of text.
NAME = '"' * 250
USERS = 110


def crowd(gate: Gate) -> None:
    """A leaderboard, submissions, hosts and a list that fill their pages."""
    gate.sql(
        "UPDATE leaderboard.leaderboard SET description = repeat('\"', 200000),"
        " task = jsonb_set(task, '{files,reference.py}', to_jsonb(repeat('<', 200000)))"
    )
    gate.sql(
        "INSERT INTO leaderboard.templates (leaderboard_id, lang, code)"
        " SELECT 1, repeat('\"', 50) || n, repeat('&', 100000) FROM generate_series(1, 30) AS n"
    )
    gate.sql(
        "INSERT INTO leaderboard.leaderboard (name, deadline, task, forum_id, description)"
        " SELECT 'other ' || n || repeat('\"', 200), now() + interval '1 day', '{}', -1, ''"
        " FROM generate_series(1, 300) AS n"
    )
    gate.sql(
        "INSERT INTO leaderboard.gpu_type (leaderboard_id, gpu_type)"
        " SELECT l.id, 'gpu ' || n || repeat('\"', 60) FROM leaderboard.leaderboard l, generate_series(1, 8) AS n"
        " WHERE l.id > 1"
    )
    for number in range(120):
        gate.bench.register(f"host-{number}" + "x" * 200, *[f"TYPE{index}" for index in range(16)])
    gate.bench.register("host-a", "CPU")
    for number in range(USERS):
        named = {"user_name": f"{number}{NAME}", "file_name": f"{number}{NAME[:200]}.py"}
        gate.rank(f"user-{number}", 1e-3 / (number + 1), code=f"# {number}\n".encode(), **named)
    for number in range(60):
        gate.bench.submit(user_id="ada", file_name=f"{NAME[:200]}.py", code=f"# ada {number}\n".encode())
        gate.bench.store.complete(gate.bench.claim(), result(Verdict.ACCEPTED, run_record("test")))


def largest(gate: Gate) -> int:
    """The submission with the largest page: its id."""
    number = gate.submit("/submission/identity/CPU/leaderboard", b"# " + b'"' * 900_000, cli="ada-token").json
    cases = {"benchmark-count": "100", "test-count": "100"}
    for kind in ("benchmark", "test"):
        for index in range(100):
            fields = {"spec": '"' * 1000, "error": "<" * 3000, "runner.timing": '"' * 300, "sol": "0.5"}
            fields["sol_limit"] = '"' * 300 + str(index)
            cases |= {f"{kind}.{index}.{name}": value for name, value in fields.items()}
    meta = {"stdout": '"' * 50_000, "stderr": "<" * 50_000, "success": True, "exit_code": 0, "duration": 1.0}
    told = {"result": cases, "meta": meta, "compilation": {"success": True, "stderr": "&" * 50_000}}
    records = [run_record(mode, passed=False, score_s=None, **told) for mode in ("test", "benchmark", "leaderboard")]
    gate.bench.store.complete(gate.bench.claim(), result(Verdict.WRONG_ANSWER, *records, error="<" * 5000))
    return int(number["details"]["id"])


def pages(gate: Gate, number: int) -> list[tuple[Browser, str]]:
    """Each page, as full as it can be, and who looks at it. `number`: the submission with the largest page."""
    stranger, user, operator = Browser(gate), Browser(gate, "ada-token"), Browser(gate, ADMIN)
    return [
        (stranger, "/"),
        (stranger, "/board/identity"),
        (stranger, "/live"),
        (stranger, "/board/identity/live"),
        (stranger, "/board/identity?range=week&scale=linear" + "".join(f"&user=user-{n}" for n in range(20))),
        (stranger, "/login"),
        (stranger, "/board/" + "%22" * 200),
        (user, "/board/identity?offset=5"),
        (user, "/mine"),
        (user, f"/view/{number}"),
        (user, "/send?board=identity&gpu=CPU"),
        (user, "/login/cli"),
        (operator, "/hosts"),
        (operator, "/users"),
    ]


def after_the_end(gate: Gate) -> list[tuple[Browser, str]]:
    """The pages of an ended leaderboard: half a million short lines, and a difference of two long sources."""
    ids = []
    for number, line in enumerate((b'"\n', b'"' * 45 + b"\n", b"<" * 45 + b"\n")):
        size = 900_000 if number == 0 else 195_000
        code = b"# %d\n" % number + line * (size // len(line))
        ids.append(gate.rank(f"end-{number}", 1e-6 / (number + 1), user_name=NAME, code=code))
    gate.sql("UPDATE leaderboard.leaderboard SET deadline = now() WHERE id = 1")
    stranger = Browser(gate)
    return [
        (stranger, "/board/identity?gpu=CPU"),
        (stranger, "/board/identity/winners"),
        *((stranger, f"/entry/{number}") for number in ids),
        (stranger, f"/diff?from={ids[0]}&to={ids[1]}"),
        (stranger, f"/diff?from={ids[1]}&to={ids[2]}"),
    ]


def check_what_is_left_out(gate: Gate, number: int) -> None:
    """Cases are counted, lists go on on the next page, and the whole code is a file."""
    user = Browser(gate, "ada-token")
    page = user.get(f"/view/{number}").text
    assert re.search(r"<p class=\"note\">\d+ more cases are not shown.</p>", page)
    code = user.get(f"/view/{number}/code")
    assert (code.status, len(code.body)) == (200, 900_002)
    assert code.headers["content-type"] == "text/plain; charset=utf-8"
    assert code.headers["content-disposition"].startswith("attachment")
    assert Browser(gate, "bob-token").get(f"/view/{number}/code").status == 403
    assert gate.ask("GET", f"/view/{number}/code").status == 303
    seen: set[str] = set()
    offset = 0
    link = re.compile(r'<h2><a href="/board/(?:other%20(\d+)|identity)')
    while found := link.findall(gate.ask("GET", f"/?offset={offset}").text):
        seen |= set(found)
        offset += len(found)
    assert len(seen) == 301


def test_no_page_has_more_than_100_kb(gate: Gate, statements: list[str]) -> None:
    """Whatever users and operators have called things, printed and submitted. Few statements; 150 KB with all else.

    What does not fit is told, and can be had.
    """
    crowd(gate)
    number = largest(gate)
    check_what_is_left_out(gate, number)
    # The pages after the end are made when the others have been read.
    for browser, path in (each for fill in (partial(pages, number=number), after_the_end) for each in fill(gate)):
        statements.clear()
        answer = browser.get(path)
        sent = len(statements)
        assert answer.status in (200, 404), path
        assert 500 < len(answer.body) <= MOST, path
        # A wall has three for each leaderboard, which all who watch share.
        assert sent <= (3 + 3 * WALL if path == "/live" else STATEMENTS), statements
        loaded = set(re.findall(r'(?:href|src)="(/static/[^"]+)"', answer.text))
        assert len(answer.body) + sum(len(browser.get(name).body) for name in loaded) <= MOST_LOADED, path
        record = re.search(r'type="application/json" href="([^"]+)"', answer.text)
        if record is not None:
            read = browser.get(html.unescape(record[1]))
            assert read.status == 200, path
            assert read.json, path
            assert len(read.body) <= MOST_RECORD, path
