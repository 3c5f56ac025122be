"""The pages: what they show to whom, what they escape, and which forms they take."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Final
from urllib.parse import quote

import pytest

from runner.base.model import Verdict
from tests.integration.extras.gateway.conftest import ADMIN, BOUNDARY, CODE, Answer, Gate, Stream, multipart, revoke
from tests.integration.store.conftest import Db, result, run_record
from tests.integration.store.test_batches import item, submit, work

Finish = Callable[..., None]
SCRIPT = "<script>alert(1)</script>"
FORM = "application/x-www-form-urlencoded"
#: What a page may weigh, in bytes.
LARGEST = 100_000


class Browser:
    """A browser's cookie and its forms; logged in, if it is given a token."""

    def __init__(self, gate: Gate, token: str | None = None) -> None:
        self.gate = gate
        self.cookie = ""
        if token is not None:
            assert self.login(token).status == 303

    def get(self, path: str) -> Answer:
        """A page."""
        return self.gate.ask("GET", path, headers={"Cookie": self.cookie})

    def post(self, path: str, body: bytes, content_type: str = FORM, origin: str | None = None) -> Answer:
        """A form that a page of this address sends, unless said otherwise."""
        origin = f"http://127.0.0.1:{self.gate.port}" if origin is None else origin
        headers = {"Cookie": self.cookie, "Content-Type": content_type, **({"Origin": origin} if origin else {})}
        return self.gate.ask("POST", path, body, headers=headers)

    def login(self, token: str) -> Answer:
        """Log in; keeps the cookie."""
        answer = self.post("/login", f"token={token}&next=/mine".encode())
        if "set-cookie" in answer.headers:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer

    def csrf(self) -> str:
        """The token of the forms."""
        found = re.search(r'name="csrf" value="([0-9a-f]{64})"', self.get("/").text)
        assert found is not None
        return found[1]


@pytest.fixture
def browser(gate: Gate) -> Browser:
    """Not logged in."""
    return Browser(gate)


@pytest.fixture
def ada(gate: Gate) -> Browser:
    """Ada's browser."""
    return Browser(gate, "ada-token")


class Checker(HTMLParser):
    """Looks for what a page must not have, and what people with aids need."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []
        self.labels: set[str] = set()
        self.fields: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[int] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One tag."""
        found = dict(attrs)
        for name, value in attrs:
            if name.startswith("on") or name == "style" or (value or "").lower().startswith("javascript:"):
                self.problems.append(f"{tag} {name}={value}")
            away = tag == "a" and found.get("rel") == "nofollow noopener"
            if name in {"src", "href", "action"} and not away and not (value or "").startswith(("/", "#")):
                self.problems.append(f"{tag} leads to {value}")
        if tag == "script" and not found.get("src", ""):
            self.problems.append("a script in the page")
        if tag == "label":
            self.labels.add(str(found.get("for")))
        if tag in {"input", "select", "textarea"} and found.get("type") != "hidden":
            self.fields.append((tag, found))
        if tag == "th" and "scope" not in found:
            self.problems.append("th without scope")
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in {"meta", "link", "input", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """The end of one."""
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> ends something else")


def checked(answer: Answer) -> str:
    """A page that is sound: small, strict, without foreign resources, with labels and headings in order."""
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert len(answer.body) <= LARGEST
    checker = Checker()
    checker.feed(answer.text)
    assert checker.problems == []
    assert checker.open == []
    assert [field for tag, field in checker.fields if field.get("id") not in checker.labels] == []
    assert checker.headings[0] == 1
    assert checker.headings.count(1) == 1
    assert '<html lang="en">' in answer.text
    return answer.text


def test_boards_and_a_ranking(gate: Gate, browser: Browser) -> None:
    """For everyone; places with units, and no link to another's submission."""
    gate.rank(score_s=2.8115e-6)
    assert '<a href="/board/identity">identity</a>' in checked(browser.get("/"))
    text = checked(browser.get("/board/identity"))
    assert "2.81 µs" in text
    assert "Ada" in text
    assert "/view/" not in text
    assert checked(browser.get("/board/identity?gpu=none&offset=5")).count("No score ranks here") == 1
    assert browser.get("/board/nothing").status == 404
    assert browser.get("/board/identity?offset=x").status == 422
    checked(browser.get("/board/nothing"))
    # Style and script; no other file.
    kinds = {"style.css": "text/css; charset=utf-8", "progress.js": "text/javascript; charset=utf-8"}
    for name, kind in {**kinds, "favicon.svg": "image/svg+xml"}.items():
        assert browser.get(f"/static/{name}").headers["content-type"] == kind
    for name in ("app.py", "..%2fapp.py", "%2e%2e/app.py", "base.html"):
        assert browser.get(f"/static/{name}").status in {404, 405}


def test_a_board_shows_its_reference_and_times_side_by_side(gate: Gate, browser: Browser) -> None:
    """The reference and the template are for everyone who sees the board; columns are in the author's order."""
    source = "def generate_input(size: int, *, n: int, seed: int):\n    return <1>\n"
    gate.sql(
        "UPDATE leaderboard.leaderboard SET task = jsonb_set(task, '{files,reference.py}', to_jsonb(%s::text))"
        ' || \'{"benchmarks": [{"n": 1, "size": 8, "seed": 2}]}\'',
        source,
    )
    for user, score_s in (("ada", 1e-6), ("bob", 1e-4), ("carol", 1e-5)):
        gate.rank(user, score_s)
    text = checked(browser.get("/board/identity"))
    assert '<i class="k">return</i> &lt;<i class="m">1</i>&gt;' in text
    assert "Template for Python" in text
    assert '<tr><th scope="col">size</th><th scope="col">n</th></tr>' in text
    assert re.findall(r"<strong>(.*)</strong>|>([+\d. %]+[×%])<", text) == [
        ("1.00 µs", ""),
        *(("10.0 µs", ""), ("", "+900 %"), ("", "10.00×")),
        *(("100 µs", ""), ("", "+900 %"), ("", "100.00×")),
    ]
    assert len(re.findall(r'class="user\d" d="M1 4H19"', text)) == 3
    saved = browser.get("/board/identity/code/Reference")
    assert (saved.text, saved.headers["content-type"]) == (source, "text/plain; charset=utf-8")
    assert saved.headers["content-disposition"] == 'attachment; filename="identity.Reference.py"'
    assert browser.get("/board/identity/code/Fortran").status == 404


def test_a_board_shows_its_progression_and_the_speed_of_light(gate: Gate, browser: Browser) -> None:
    """Scores that count alone, drawn in the page itself; a run that was taken out leaves the drawing."""
    for mean, passes in (("10000", True), ("8000", True), ("5000", False), ("4000", True)):
        gate.submit("/submission/identity/CPU/leaderboard")
        for _ in range(2):
            job = gate.bench.claim()
            timed = {"benchmark-count": "1", "benchmark.0.mean": mean, "benchmark.0.sol": str(2000 / float(mean))}
            record = run_record("leaderboard", score_s=float(mean) / 1e9, result=timed)
            if job.secret and not passes:
                record = replace(record, passed=False, score_s=None)
            verdict = Verdict.ACCEPTED if record.passed else Verdict.WRONG_ANSWER
            gate.bench.store.complete(job, result(verdict, record))
    text = checked(browser.get("/board/identity"))
    assert "3 scores over time. The best fell from 10.0 µs to 4.00 µs in 2 steps." in text
    assert "The speed of light is 2.00 µs." in text
    assert text.count('class="light"') == 1
    assert "5.00 µs" not in text
    assert '8"></rect></svg> 50 %</td>' in text
    # One user has no distribution.
    assert "Best scores of the users" not in text
    assert "scale=linear" in checked(browser.get("/board/identity?scale=linear"))
    first_page = checked(browser.get("/"))
    assert 'aria-label="The best fell from 10.0 µs to 4.00 µs"' in first_page
    assert '<td class="number">4.00 µs</td><td class="number">1</td>' in first_page


def test_a_closed_board_is_not_shown_to_strangers(gate: Gate, browser: Browser, ada: Browser) -> None:
    """A visitor is asked to log in; without an invitation 403."""
    gate.sql("UPDATE leaderboard.leaderboard SET visibility = 'closed', description = 'the secret plan'")
    assert browser.get("/board/identity").headers["location"] == "/login?next=%2Fboard%2Fidentity"
    assert browser.get("/send?board=identity").headers["location"] == "/login?next=%2Fsend%3Fboard%3Didentity"
    assert browser.get("/board/identity/code/Python").status == 303
    assert ada.get("/board/identity/code/Python").status == 403
    refused = ada.get("/board/identity")
    assert refused.status == 403
    assert "the secret plan" not in refused.text + browser.get("/").text
    checked(refused)


def test_login_and_logout(gate: Gate, browser: Browser, ada: Browser) -> None:
    """By the token of popcorn-cli; the cookie is for this address and for no script, and ends with the token."""
    checked(browser.get("/login"))
    refused = browser.login("wrong")
    assert (refused.status, browser.cookie) == (401, "")
    checked(refused)
    answer = browser.login("ada-token")
    assert (answer.status, answer.headers["location"]) == (303, "/mine")
    assert {"HttpOnly", "SameSite=lax", "Path=/"} <= set(answer.headers["set-cookie"].split("; "))
    assert "ada-token" not in answer.headers["set-cookie"]
    checked(browser.get("/mine"))
    assert browser.post("/logout", b"").status == 403
    gone = browser.post("/logout", f"csrf={browser.csrf()}".encode())
    assert f'kernel_runner_session_{gate.port}=""' in gone.headers["set-cookie"]
    # A cookie of a user, whatever the name, is signed with that user's key.
    for user_id in ("o", "operator", "u", "\u2022operator"):
        gate.user(user_id, token=f"token-{user_id.encode().hex()}")
        someone = Browser(gate, f"token-{user_id.encode().hex()}")
        assert someone.get("/mine").status == 200
        assert someone.get("/hosts").status == 403
    # At once, on every process; a cookie that was changed is none.
    assert ada.get("/mine").status == 200
    name, until, signature = ada.cookie.split(".")
    kept, cookie = ada.cookie, ada.cookie.partition("=")[0]
    for changed in (
        f"{name}.{int(until) + 1}.{signature}",
        f"{name}.{until}.{'0' * 64}",
        f"{name}.1.{signature}",
        f"{cookie}=x",
        f"{cookie}=ub.9.\xe9",
        f"{cookie}=o.99999999999.0",
        f"{cookie}=..",
        f"{cookie}=u%ff.99999999999.x",
    ):
        ada.cookie = changed
        assert ada.get("/mine").status == 303, changed
    ada.cookie = kept
    revoke(gate.bench.store, "ada")
    assert ada.get("/mine").status == 303


def test_no_neighbour_logs_a_browser_in(open_gate: Callable[..., Gate]) -> None:
    """With encryption: a page of another name of this domain could set a cookie of any other name."""
    gate = open_gate(gateway_public_url="https://kernels.example")
    gate.user("eve")
    victim = Browser(gate)
    answer = victim.login("eve-token")
    assert victim.cookie.startswith("__Host-kernel_runner_session=u")
    assert {"Secure", "Path=/"} <= set(answer.headers["set-cookie"].split("; "))
    assert victim.get("/mine").status == 200
    gone = victim.post("/logout", f"csrf={victim.csrf()}".encode())
    assert gone.headers["set-cookie"].startswith('__Host-kernel_runner_session="";')
    assert "Secure" in gone.headers["set-cookie"]
    victim.cookie = victim.cookie.removeprefix("__Host-")
    assert victim.get("/mine").headers["location"].startswith("/login?")


def test_two_gateways_of_one_host_do_not_log_each_other_out(open_gate: Callable[..., Gate]) -> None:
    """A browser sends the cookies of a host to all of its ports."""
    gates = [open_gate(), open_gate()]
    for number, gate in enumerate(gates):
        gate.user(f"user-{number}")
    browsers = [Browser(gate, f"user-{number}-token") for number, gate in enumerate(gates)]
    kept = dict(browser.cookie.split("=") for browser in browsers)
    for number, browser in enumerate(browsers):
        browser.cookie = "; ".join(f"{name}={value}" for name, value in kept.items())
        assert f"User-{number}" in browser.get("/mine").text


def test_a_form_of_another_site_is_refused(gate: Gate, ada: Browser) -> None:
    """Even with the cookie and the right token."""
    csrf = ada.csrf()
    gate.submit()
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "x" * 100, "http://[", ""):
        for path in ("/view/1/cancel", "/logout", "/login"):
            assert ada.post(path, f"csrf={csrf}&token=ada-token".encode(), origin=origin).status == 403, origin
    assert gate.sql("SELECT state FROM runner.job") == [("queued",)]


#: Headers of a form, and how it is answered.
ORIGINS: Final[tuple[tuple[dict[str, str], int], ...]] = (
    # What the browser has compared, behind a proxy that names the gateway otherwise.
    ({"Sec-Fetch-Site": "same-origin", "Origin": "https://kernels.example"}, 303),
    ({"Sec-Fetch-Site": "same-origin", "Origin": "https://other.example"}, 303),
    ({"Sec-Fetch-Site": "same-site", "Origin": "https://kernels.example"}, 403),
    ({"Sec-Fetch-Site": "cross-site", "Host": "evil.example", "Origin": "https://evil.example"}, 403),
    ({"Sec-Fetch-Site": "cross-site", "Origin": "null"}, 403),
    # A browser that says its origin alone.
    ({"Origin": "https://kernels.example"}, 303),
    ({"Origin": "http://hall.example", "Host": "hall.example:80"}, 303),
    ({"Origin": "http://hall.example:8080", "Host": "Hall.example:8080"}, 303),
    ({"Origin": "http://hall.example:8080", "Host": "hall.example"}, 403),
    ({"Origin": "https://kernels.example.evil.example"}, 403),
    ({"Origin": "https://evil.example", "X-Forwarded-Host": "evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({}, 403),
)


def test_a_form_of_this_site_is_known_behind_a_proxy(open_gate: Callable[..., Gate]) -> None:
    """Whatever becomes of the name of the host there."""
    gate = open_gate(gateway_public_url="https://kernels.example")
    gate.user("ada")
    for sent, status in ORIGINS:
        headers = {"Host": "127.0.0.1:8000", "Content-Type": FORM, **sent}
        assert gate.ask("POST", "/login", b"token=ada-token", headers=headers).status == status, sent


def test_submitting_a_file_and_pasted_text(gate: Gate, ada: Browser, browser: Browser) -> None:
    """With the token of the session; without it, or logged out, nothing is stored."""
    checked(ada.get("/send?board=identity&gpu=CPU"))
    assert browser.get("/send?board=identity").status == 303
    fields = {"csrf": ada.csrf(), "board": "identity", "gpu": "CPU", "mode": "test"}
    kind = f"multipart/form-data; boundary={BOUNDARY}"
    body, _ = multipart(fields={**fields, "csrf": "0" * 64})
    assert ada.post("/send", body, kind).status == 403
    body, _ = multipart(fields=fields)
    assert browser.post("/send", body, kind).status == 401
    assert ada.post("/send", body, kind).headers["location"] == "/view/1"
    body, _ = multipart(b"", "", fields={**fields, "code": "a = 1\r\nb = 2\r\n", "name": "pasted.py"})
    assert ada.post("/send", body, kind).headers["location"] == "/view/2"
    stored = "leaderboard.submission s JOIN leaderboard.code_files c ON c.id = s.code_id WHERE s.id = 2"
    assert gate.sql(f"SELECT file_name, code FROM {stored}") == [("pasted.py", b"a = 1\nb = 2\n")]  # noqa: S608 - ours
    for code, missing, says in (
        (b"", {}, "The file is empty"),
        (CODE, {"board": ""}, "No leaderboard is named"),
        (CODE, {"gpu": ""}, "No GPU type is named. Choose from: CPU"),
        (CODE, {"mode": ""}, "No mode is named, expected one of"),
    ):
        body, _ = multipart(code, fields={**fields, **missing})
        refused = ada.post("/send", body, kind)
        assert (refused.status, says in checked(refused)) == (400, True)
    assert "No leaderboard is named" in checked(ada.get("/send"))


def test_the_editor_has_the_template(gate: Gate, ada: Browser) -> None:
    """The first, or the one that is asked for; the user's last submission; one that is too long is to be downloaded."""
    gate.sql("INSERT INTO leaderboard.templates (leaderboard_id, lang, code) VALUES (1, 'CUDA', '// </textarea>')")
    page = checked(ada.get("/send?board=identity"))
    assert "\n// &lt;/textarea&gt;</textarea>" in page
    assert page.count("template=") == 2
    assert "last submission" not in page
    gate.submit()
    page = checked(ada.get("/send?board=identity&template=Python"))
    assert "\ndef custom_kernel(data): ...</textarea>" in page
    assert 'href="/view/1">Your last submission' in page
    gate.sql("UPDATE leaderboard.templates SET code = repeat('&', 20000)")
    page = checked(ada.get("/send?board=identity&template=Python"))
    assert 'href="/board/identity/code/Python"' in page


def test_trends_of_chosen_users(gate: Gate, browser: Browser) -> None:
    """A form with the users; the links of axis and time keep the choice."""
    for number, user in enumerate(("ada", "bob") * 2, 1):
        gate.rank(user, 1e-5 / number)
    gate.sql("UPDATE runner.score SET submission_time = now() - (5 - submission_id) * interval '20 hours'")
    gate.sql("UPDATE leaderboard.submission SET submission_time = now() - (5 - id) * interval '20 hours'")
    page = checked(browser.get("/board/identity?user=bob&range=week"))
    assert re.findall(r'name="user" value="(\w+)"( checked)?', page) == [("bob", " checked"), ("ada", "")]
    assert "2 scores over time" in page
    assert "range=week&amp;scale=linear" in page or "scale=linear&amp;range=week&amp;user=bob" in page
    assert len(re.findall(r'class="user\d" d="M1 4H19"', page)) == 1
    assert "Less than two scores" in checked(browser.get("/board/identity?range=day"))


def test_a_list_of_submissions_shows_verdicts_and_times(gate: Gate, ada: Browser, finish: Finish) -> None:
    """A wrong answer is one, whatever KernelBot's job status is; what waits says so. Forms choose among them."""
    gate.submit()
    gate.bench.store.complete(gate.bench.claim(), result(Verdict.WRONG_ANSWER, run_record("test", passed=False)))
    gate.submit()
    shown = checked(ada.get("/mine"))
    assert re.findall(r">(Wrong answer|succeeded|failed|queued)</td>", shown) == ["queued", "Wrong answer"]
    for choice, ids in (
        ("verdict=wrong_answer", ["1"]),
        ("verdict=accepted", []),
        ("leaderboard=identity&gpu_type=CPU&verdict=", ["2", "1"]),
        ("gpu_type=H100", []),
        ("leaderboard=%3Cscript%3E", []),
    ):
        assert re.findall(r'href="/view/(\d+)"', checked(ada.get(f"/mine?{choice}"))) == ids
    # The time on each GPU type, whatever else ran there.
    gpus = ["A", "B", "C", "D"]
    gate.bench.board("several", *gpus)
    gate.bench.submit(leaderboard="several", user_id="ada", mode="leaderboard", gpu_types=gpus)
    finish(*gpus)
    assert re.findall(r"(\w) 2\.50 µs", checked(ada.get("/mine"))) == gpus


def test_many_cases_that_fail_hide_neither_the_first_nor_the_output(gate: Gate, ada: Browser) -> None:
    """The first three are shown with their messages, though their lines have no room any more."""
    gate.submit()
    cases = {"test-count": "90"}
    for index in range(90):
        cases |= {f"test.{index}.spec": "n: 1; " * 20, f"test.{index}.status": "pass" if index < 60 else "fail"}
        cases |= {} if index < 60 else {f"test.{index}.error": f"of case {index + 1}" + "x" * 1500}
    meta = {"stdout": "", "stderr": "the end of stderr", "exit_code": 112}
    failed = run_record("test", passed=False, result=cases, meta=meta)
    gate.bench.store.complete(gate.bench.claim(), result(Verdict.WRONG_ANSWER, failed))
    page = checked(ada.get("/view/1"))
    assert "Wrong answer in test 61 of 90" in page
    assert re.findall(r"<h3>Test (\d+):", page) == re.findall(r"of case (\d+)x", page) == ["61", "62", "63"]
    assert "the end of stderr</pre>" in page


def test_a_submission_is_its_owners_and_the_operators(gate: Gate, ada: Browser, browser: Browser) -> None:
    """And can be cancelled."""
    gate.submit()
    other = Browser(gate, "bob-token")
    assert "queued" in checked(ada.get("/view/1"))
    assert browser.get("/view/1").status == 303
    assert other.get("/view/1").status == 403
    assert other.post("/view/1/cancel", f"csrf={other.csrf()}".encode()).status == 403
    for path, status in (("/view/9", 404), ("/view/x", 422), ("/view/99999999999", 404)):
        assert ada.get(path).status == status
    assert ada.post("/view/1/cancel", b"csrf=x").status == 403
    assert ada.post("/view/1/cancel", f"csrf={ada.csrf()}".encode()).headers["location"] == "/view/1"
    assert gate.sql("SELECT state FROM runner.job") == [("cancelled",)]
    assert "cancelled" in checked(ada.get("/view/1"))


def test_cases_times_and_outputs(gate: Gate, ada: Browser) -> None:
    """A benchmark with its interval, the end of what was printed, and never a secret run's."""
    gate.submit("/submission/identity/CPU/leaderboard")
    for _ in range(2):
        job = gate.bench.claim()
        said = "secret-words" if job.secret else "public-words"
        fields = {"spec": f"n: 16; {said}", "mean": "12345.6", "runner.mean_ci95": "[12000.0, 12700.0]", "runs": "64"}
        fields |= {"median": "12300", "best": "12100", "worst": "13900", "sol": "0.734", "sol_limit": "memory"}
        fields |= {"runner.timing": "audited", "runner.noisy": "0.08"}
        timed = {"benchmark-count": "1", **{f"benchmark.0.{name}": value for name, value in fields.items()}}
        failed = {"test-count": "1", "test.0.spec": "n: 1", "test.0.status": "fail"}
        failed["test.0.error"] = f"mismatch {SCRIPT}"
        meta = {"stdout": "x" * 10_000 + said, "stderr": SCRIPT, "success": True, "exit_code": 0, "duration": 1.0}
        tested = run_record("test", result=failed, meta=meta)
        ranked = run_record("leaderboard", score_s=1.2e-5, result=timed, meta=meta)
        gate.bench.store.complete(job, result(Verdict.ACCEPTED, tested, ranked))
    text = checked(ada.get("/view/1"))
    shown = ['<h1 class="good">Accepted: 12.0 µs ± 2.8 %</h1>', "12.3 ± 0.35 µs", "13.9 µs", "64", "own clock, audited"]
    shown += ["noisy: 0.08", "73 % (memory)", "queued", "Roofline: 73 %", "public-words", "mismatch", "Secret run"]
    assert [words for words in shown if words not in text] == []
    assert "secret-words" not in text
    assert SCRIPT not in text
    assert "&lt;script&gt;" in text


def test_markup_in_names_is_text(gate: Gate, ada: Browser) -> None:
    """Of users, boards, files, GPU types, hosts, verdicts and what an address says."""
    board = f"b{SCRIPT.replace('/', '')}"
    gate.bench.board(board, f"g{SCRIPT}", description=f"d{SCRIPT} [a](https://x.example) [b](javascript:1)")
    gate.sql("UPDATE leaderboard.user_info SET user_name = %s WHERE id = 'ada'", f"u{SCRIPT}")
    host = "INSERT INTO runner.host (name, version, slots, drain_reason, draining) VALUES (%s, %s, %s::jsonb, %s, true)"
    gate.sql(host, f"h{SCRIPT}", SCRIPT, '[{"gpu_type": "' + SCRIPT + '"}, 1]', SCRIPT)
    file = f"f{SCRIPT.replace('/', '')}.py"
    gate.bench.submit(leaderboard=board, user_id="ada", user_name=None, file_name=file, code=SCRIPT.encode())
    operator = Browser(gate, ADMIN)
    place, script = quote(board, safe=""), quote(SCRIPT)
    paths = ("/", "/mine", "/view/1", "/hosts", f"/board/{place}", f"/board/{script}", f"/send?board={place}")
    for person in (ada, operator):
        for path in (*paths, f"/login?next=/{script}"):
            answer = person.get(path)
            assert "<script>" not in answer.text, path
            if "location" not in answer.headers and answer.headers["content-type"].startswith("text/html"):
                checked(answer)


def test_the_operators_page(gate: Gate, ada: Browser, finish: Finish) -> None:
    """Hosts, queue and verdicts, by the admin token alone."""
    gate.bench.register("host-a", "CPU", "CPU")
    gate.submit()
    finish()
    gate.submit()
    operator = Browser(gate, ADMIN)
    assert ADMIN not in operator.cookie
    text = checked(operator.get("/hosts"))
    for shown in ("host-a", "2 CPU", "Accepted", "up"):
        assert shown in text
    checked(operator.get("/view/1"))
    assert ada.get("/hosts").status == 403
    assert operator.get("/send?board=identity").status == 403
    checked(operator.get("/mine"))


def test_slots_that_are_not_used_do_not_count(gate: Gate) -> None:
    """Whose last container does not go: for users they are not there, and operators read why."""
    away = {"gpu_type": "CPU", "name": "cpu1", "quarantined": "it goes on computing"}
    gate.bench.register("host-a", "CPU", slots=[{"gpu_type": "CPU", "name": "cpu0"}, away])
    assert gate.ask("GET", "/runner_queue/CPU").json["available_runners"] == 1
    gate.bench.register("host-a", "CPU", slots=[away])
    # In another case: the first answer is kept for a second.
    queue = gate.ask("GET", "/runner_queue/cpu").json
    assert (queue["available_runners"], queue["error"]) == (0, "no host serves this GPU type now")
    operator = Browser(gate, ADMIN)
    (host,) = operator.get("/hosts?format=json").json["hosts"]
    assert (host["types"], host["away"]) == ({}, ["cpu1 not used: it goes on computing"])
    assert "up</strong>; cpu1 not used: it goes on computing</td>" in checked(operator.get("/hosts"))


def test_operators_see_open_batches(gate: Gate, db: Db) -> None:
    """How far each is, until all its items have results."""
    db.execute("INSERT INTO runner.gpu_type (name, vendor, aliases) VALUES ('CPU', 'none', '{}')")
    gate.bench.register("host-a", "CPU")
    operator = Browser(gate, ADMIN)
    assert "Open batches" not in operator.get("/hosts").text
    submit(db, [item(n) for n in range(8)], batch="named<", user_id="trainer")
    text = checked(operator.get("/hosts"))
    line = r'named&lt;</th><td>trainer</td><td class="number">0</td>\s*<td class="number">8</td>'
    assert re.search(line, text)
    work(gate.bench)
    assert "Open batches" not in operator.get("/hosts").text


def test_progress_comes_as_events(gate: Gate, ada: Browser, finish: Finish) -> None:
    """What happens is told until it is over; only to who may see the submission."""
    gate.submit()
    assert gate.ask("GET", "/view/1/events").status == 401
    assert ada.get("/view/2/events").status == 404
    with Stream(gate.port, "GET /view/1/events", Cookie=ada.cookie) as stream:
        stream.until(b"queued")
        finish()
        gate.sql("NOTIFY runner_events, '{\"submissions\": [1]}'")
        got = stream.rest()
    assert b'"done":true' in got
    assert b"Accepted" in got
    assert b"/static/progress.js" not in ada.get("/view/1").body


def test_a_large_board_is_shown_in_pages(gate: Gate, browser: Browser) -> None:
    """Fifty places at a time; a place knows the best of all, and the one before it on the page before."""
    gate.sql(
        "WITH u AS (INSERT INTO leaderboard.user_info (id, user_name) SELECT 'u' || i, repeat('n', 100) || i"
        " FROM generate_series(1, 70) AS i RETURNING id), c AS (INSERT INTO leaderboard.code_files (code) VALUES ('x')"
        " RETURNING id), s AS (INSERT INTO leaderboard.submission (leaderboard_id, file_name, user_id, code_id,"
        " submission_time, done) SELECT 1, 'x.py', u.id, c.id, now(), true FROM u, c RETURNING id)"
        " INSERT INTO leaderboard.runs (submission_id, start_time, end_time, mode, secret, runner, score, passed,"
        " system_info) SELECT s.id, now(), now(), 'leaderboard', k.secret, 'CPU', 0.001 * (1 + s.id % 2), true, '{}'"
        " FROM s, (VALUES (false), (true)) AS k (secret)"
    )
    first = checked(browser.get("/board/identity?gpu=CPU"))
    assert first.count('<td class="number">1</td>') == 35
    assert first.count('<td class="number">36</td>') == 15
    assert "offset=50" in first
    second = checked(browser.get("/board/identity?gpu=CPU&offset=50"))
    assert second.count('<td class="number">36</td>') == second.count("2.00×") == second.count("+0 %") == 20
