"""Logins without OAuth: what popcorn-cli asks for, what an operator approves, and what ends them."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import psycopg
import pytest

from runner.base.errors import SubmissionError
from tests.integration.extras.gateway.conftest import ADMIN, Answer, Gate, approve, revoke, set_token, states
from tests.integration.extras.gateway.test_pages import FORM, Browser
from tests.integration.store.conftest import Bench


def begin(gate: Gate) -> str:
    """A cli_id, as `popcorn register` saves it."""
    state = gate.ask("GET", "/auth/init?provider=github").json["state"]
    assert isinstance(state, str)
    return state


def test_a_new_cli_id_waits_for_an_operator(gate: Gate, bench: Bench) -> None:
    """It is of no use before; after, it is the user's; only a digest is stored. Of providers that clients know."""
    for query, status in (("?provider=myspace", 400), ("", 422)):
        assert gate.ask("GET", f"/auth/init{query}").status == status
    state = begin(gate)
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", state)
    assert state not in str(gate.sql("SELECT * FROM leaderboard.user_info"))
    assert gate.ask("GET", "/user/submissions", cli=state).status == 401
    assert list(states(bench.store).values()) == ["waits", "valid", "valid"]
    approve(bench.store, state[:8], "carol", user_name="Carol")
    assert gate.ask("GET", "/user/submissions", cli=state).status == 200
    assert gate.submit(cli=state).status == 202
    assert gate.sql("SELECT user_name FROM leaderboard.user_info WHERE id = 'carol'") == [("Carol",)]
    assert gate.sql("SELECT count(*) FROM leaderboard.user_info WHERE id ~ '^temp_'") == [(0,)]


def test_no_account_is_taken_over(gate: Gate, bench: Bench) -> None:
    """An existing user needs the word of the operator; the login before ends then, and with a new token or a revoke."""
    state = begin(gate)
    with pytest.raises(SubmissionError, match="exists already"):
        approve(bench.store, state[:8], "ada")
    assert gate.ask("GET", "/user/submissions", cli="ada-token").status == 200
    approve(bench.store, state[:8], "ada", existing=True)
    assert gate.ask("GET", "/user/submissions", cli="ada-token").status == 401
    assert gate.ask("GET", "/user/submissions", cli=state).status == 200
    with pytest.raises(SubmissionError, match="no login waits"):
        approve(bench.store, state[:8], "carol")
    for bad in ("", "temp_12345678", "a\nb", "x" * 256):
        with pytest.raises(SubmissionError, match="user id"):
            approve(bench.store, begin(gate)[:8], bad)
    set_token(bench.store, "ada", "new")
    assert gate.ask("GET", "/user/submissions", cli=state).status == 401
    assert gate.ask("GET", "/user/submissions", cli="new").status == 200
    assert gate.ask("GET", "/user/submissions", web="ada-web").status == 200
    assert revoke(bench.store, "ada")
    assert gate.ask("GET", "/user/submissions", cli="new").status == 401
    assert gate.ask("GET", "/user/submissions", web="ada-web").status == 401
    assert not revoke(bench.store, "nobody")
    assert (states(bench.store)["ada"], states(bench.store)["bob"]) == ("no login", "valid")


def test_users_are_numbers_where_kernelbot_has_the_tables(gate: Gate, bench: Bench) -> None:
    """Its list of a leaderboard fails for everybody where one is not: no door stores what would be listed.

    Who is there already may read on.
    """
    gate.sql("INSERT INTO public._yoyo_log (id, comment) VALUES ('1', NULL)")
    code = begin(gate)[:8]
    with pytest.raises(SubmissionError, match="user id 'carol' is no number"):
        set_token(bench.store, "carol", "new")
    with pytest.raises(SubmissionError, match="user id 'carol' is no number"):
        approve(bench.store, code, "carol")
    set_token(bench.store, "ada", "new")
    approve(bench.store, code, "4711", user_name="Carol")
    refused = gate.submit(cli="new")
    assert refused.status == 403, refused.body
    assert "user id 'ada' is no number" in refused.detail
    submit = "SELECT runner.submit('identity', %s, 'a.py', 'def custom_kernel(data): pass', 'test', ARRAY['CPU'])"
    for bad in ("carol", "ada", "12a", "٣", "-1", "1 "):
        with pytest.raises(psycopg.Error, match="is no number, and KernelBot") as error:
            gate.sql(submit, bad)
        assert "\n" not in str(error.value.diag.message_primary)
    assert gate.sql(submit, "4711")
    assert gate.sql("SELECT DISTINCT user_id FROM leaderboard.submission") == [("4711",)]


def ask_for_login(gate: Gate, number: int, origin: str) -> None:
    """A login that waits, of an address that stands for this origin."""
    code, kept = f"{number:08x}", f"sha256:{number:064x}"
    assert gate.sql("SELECT runner.begin_login(%s, %s, 'github', %s)", code, kept, origin) == [(True,)]


def waiting(gate: Gate) -> dict[str, int]:
    """How many logins wait, by origin."""
    return dict(gate.sql("SELECT origin, count(*) FROM runner.waiting_login GROUP BY origin"))


def test_nobody_keeps_others_from_a_first_login(gate: Gate, bench: Bench) -> None:
    """Ten of one address wait; beyond a thousand the address with most loses its oldest, however many addresses ask."""
    honest = begin(gate)
    for number in range(12):
        ask_for_login(gate, number, "one")
    assert sorted(waiting(gate).values()) == [1, 10]
    gate.sql(
        "SELECT runner.begin_login(lpad(to_hex(i), 8, '0'), 'sha256:' || lpad(to_hex(i), 64, '0'), 'github',"
        " 'o' || i / 10) FROM generate_series(100, 1119) AS i"
    )
    assert sum(waiting(gate).values()) == 1000
    approve(bench.store, honest[:8], "carol", user_name="Carol")
    assert gate.ask("GET", "/user/submissions", cli=honest).status == 200
    assert sum(waiting(gate).values()) == 999
    assert gate.sql("SELECT count(*) FROM leaderboard.user_info WHERE id ~ '^temp_'") == [(999,)]


def test_logins_that_nobody_approves_go(gate: Gate) -> None:
    """After twelve hours; those that KernelBot began after a day; KernelBot's users stay."""
    begin(gate)
    gate.sql("UPDATE runner.waiting_login SET since = now() - interval '13 hours'")
    gate.sql(
        "INSERT INTO leaderboard.user_info (id, user_name, cli_valid, created_at)"
        " SELECT 'temp_' || i, 'temp_user', false, localtimestamp - i * interval '1 hour'"
        " FROM generate_series(20, 29) AS i"
    )
    begin(gate)
    assert gate.sql("SELECT count(*) FROM leaderboard.user_info WHERE id !~ '^temp_'") == [(2,)]
    assert gate.sql("SELECT count(*) FROM leaderboard.user_info WHERE id ~ '^temp_'") == [(4 + 1,)]


def test_the_address_of_a_login_is_not_stored(open_gate: Callable[..., Gate]) -> None:
    """Two gateways, or one that began again, have another digest of it."""
    gates = [open_gate(), open_gate()]
    for gate in (*gates, gates[0]):
        begin(gate)
    assert sorted(waiting(gates[0]).values()) == [1, 2]
    assert "127.0.0.1" not in str(gates[0].sql("SELECT * FROM runner.waiting_login"))


@pytest.mark.usefixtures("limits_stand_still")
def test_logins_are_limited_per_address(open_gate: Callable[..., Gate]) -> None:
    """So that a stranger cannot fill the list, nor guess a token on the page."""
    gate = open_gate(gateway_requests_per_minute=100)
    assert [gate.ask("GET", "/auth/init?provider=github").status for _ in range(3)] == [200, 200, 429]
    headers = {"Content-Type": FORM, "Sec-Fetch-Site": "same-origin"}
    assert gate.ask("POST", "/login", b"token=guess", headers=headers).status == 429


def test_an_operator_approves_a_new_user_on_a_page(gate: Gate) -> None:
    """With the same checks as the command; an account that exists is not given away."""
    operator, stranger = Browser(gate, ADMIN), Browser(gate, "ada-token")
    first, second = begin(gate), begin(gate)
    assert "2 logins wait for approval" in operator.get("/users").text

    def approve(browser: Browser, code: str, user: str, name: str = "", csrf: str | None = None) -> Answer:
        token = browser.csrf() if csrf is None else csrf
        return browser.post("/users", f"csrf={token}&code={code}&user={user}&name={name}".encode())

    approved = approve(operator, first[:8], "carol", "Carol+%3Cb%3E")
    assert approved.status == 200
    assert "carol is logged in" in approved.text
    assert gate.ask("GET", "/user/submissions", cli=first).status == 200
    assert gate.sql("SELECT user_name FROM leaderboard.user_info WHERE id = 'carol'") == [("Carol <b>",)]
    for code, user, sentence in (
        (second[:8], "ada", "user 'ada' exists already"),
        ("00000000", "dave", "no login waits under the code"),
        (second[:8], "", "user id"),
        (second[:8], "temp_x", "user id"),
        ("", "dave", "no login waits"),
        ("%3Cscript%3E", "dave", "no login waits"),
    ):
        answer = approve(operator, code, user)
        assert (answer.status, sentence in html.unescape(answer.text)) == (400, True), answer.text
        assert "<script>" not in answer.text
    assert gate.ask("GET", "/user/submissions", cli=second).status == 401
    assert gate.ask("GET", "/user/submissions", cli="ada-token").status == 200
    # Neither without the form's token, nor by anyone else.
    assert approve(operator, second[:8], "dave", csrf="0" * 64).status == 403
    assert stranger.get("/users").status == 403
    assert approve(stranger, second[:8], "dave").status == 403
    assert Browser(gate).get("/users").status == 303
    assert gate.ask("GET", "/user/submissions", cli=second).status == 401


def test_a_session_behind_a_proxy_is_sent_with_encryption_alone(gate: Gate, open_gate: Callable[..., Gate]) -> None:
    """The address that browsers see says whether there is any, whatever the proxy tells of itself."""
    headers = {"Content-Type": FORM, "Sec-Fetch-Site": "same-origin"}
    plain, encrypted = (open_gate(gateway_public_url=f"{scheme}://kernels.example") for scheme in ("http", "https"))
    for each, is_secure in ((gate, False), (plain, False), (encrypted, True)):
        answer = each.ask("POST", "/login", b"token=ada-token", headers=headers)
        assert (answer.status, "; Secure" in answer.headers["set-cookie"]) == (303, is_secure)
