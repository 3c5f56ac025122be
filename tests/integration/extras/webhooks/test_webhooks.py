"""Each event is told once to each target, in order, whatever fails meanwhile; and nothing that pages do not show."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from runner.cli import main
from runner.extras.webhooks import messages
from tests.integration.extras.webhooks.conftest import SECRET, Play, Target
from tests.integration.store.conftest import Bench, Db
from tests.integration.store.test_finals import play as play_final
from tests.integration.store.test_finals import scored
from tests.support import sweeps
from tests.support.waiting import wait_until

Submit = Callable[..., int]
RECORDS: Final = ("record.new",)
RANKINGS: Final = ("record.new", "ranking.top3")


def told(target: Target, path: str) -> list[Any]:
    """What a path was told, in short."""
    return [short(message.document) for message in target.at(path)]


def short(document: dict[str, Any]) -> Any:  # noqa: ANN401 - a kind and what it is about
    """A kind and what it is about."""
    data = document["data"]
    match document["type"]:
        case "record.new":
            return "record", data["submission_id"]
        case "ranking.top3":
            return "top3", *(place["submission_id"] for place in data["places"])
        case "board.final":
            return "final", *(place["user"] for place in data["places"])
        case "host.lost" | "host.back":
            return document["type"], data["host"]
        case kind:
            return kind, data.get("leaderboard")


#: What happens on a leaderboard.
WORLD: Final = ("submit", "invalidate", "ban")
#: What happens, and which sender fails where. Numbers are users and microseconds.
STEPS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 4), st.integers(1, 40)),
        st.tuples(st.sampled_from(["invalidate", "ban"]), st.integers(1, 4), st.just(0)),
        st.tuples(st.sampled_from(["tell", "derive", "die", "lose the answer", "fail", "two"]), st.just(0), st.just(0)),
    ),
    min_size=6,
    max_size=14,
)


class Model:
    """What is to be told: the rules of docs/webhooks.md once more, over lists."""

    def __init__(self) -> None:
        self.scores: list[tuple[int, str, int]] = []
        self.banned: set[str] = set()
        self.records: list[int] = []
        self.leaders: list[int] = []
        #: What waits for the target that is up, and for the one that is down.
        self.waiting: list[tuple[str, list[int]]] = []
        self.delayed: list[tuple[str, list[int]]] = []
        self.told: list[tuple[Any, ...]] = []

    def counts(self, submission_id: int) -> bool:
        """Whether a result may be told."""
        return any(item == submission_id for item, _, _ in self.counting())

    def counting(self) -> list[tuple[int, str, int]]:
        """The scores of users who are not banned."""
        return [score for score in self.scores if score[1] not in self.banned]

    def derive(self) -> None:
        """As `runner.derive_webhooks`."""
        # What is taken out of an event that waits does not come back.
        self.waiting, self.delayed = (
            [(kind, kept) for kind, ids in events if (kept := [*filter(self.counts, ids)])]
            for events in (self.waiting, self.delayed)
        )
        records: list[int] = []
        best: dict[str, tuple[int, int]] = {}
        lowest = 10**9
        for submission_id, user, score in self.counting():
            if score < lowest:
                records.append(submission_id)
                lowest = score
            best[user] = min(best.get(user, (score, submission_id)), (score, submission_id))
        leaders = [item for _, item in sorted(best.values())]
        if leaders[:3] == self.leaders:
            return
        if leaders[:1] != self.leaders[:1]:
            last = max((records.index(item) for item in records if item in self.records), default=-1)
            for item in records[last + 1 :]:
                self.records.append(item)
                self._tell_of("record", [item])
        self.leaders = leaders[:3]
        if self.leaders:
            self._tell_of("top3", self.leaders)

    def _tell_of(self, kind: str, ids: list[int]) -> None:
        for events in (self.waiting, self.delayed):
            events.append((kind, ids))

    def tell(self) -> None:
        """All that waits is told."""
        self.told += [(kind, *ids) for kind, ids in self.waiting]
        self.waiting = []


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
# A user is banned while a message waits, and not any more when it goes out.
@example(
    [
        ("submit", 2, 1),
        ("submit", 4, 31),
        ("submit", 1, 1),
        ("tell", 0, 0),
        ("ban", 4, 0),
        ("tell", 0, 0),
        ("ban", 4, 0),
    ]
)
def test_every_event_is_told_once_and_in_order_whatever_dies(
    play: Play, submit: Submit, steps: list[tuple[str, int, int]]
) -> None:
    """One target is down beside one that is up; one message is told twice only where its answer was lost."""
    target = play.target
    begin(play)
    model, lost = Model(), set[str]()
    for step, number, score_us in steps:
        if step in WORLD:
            change(play, submit, model, step=step, user=f"u{number}", score_us=score_us)
            continue
        model.derive()
        if step == "derive":
            # A sender is gone before it has told anything.
            play.db.execute("SELECT runner.derive_webhooks()")
            continue
        lost |= tell(play, step)
        model.tell()
        assert first_of_each(target, "/up") == model.told
    target.answers.clear()
    before = len(target.at("/down"))
    play.later("1 hour")
    model.derive()
    model.tell()
    play.tell()
    assert first_of_each(target, "/up") == model.told
    keys = [message.key for message in target.at("/up")]
    assert {key for key in keys if keys.count(key) > 1} <= lost
    sequences = [message.document["sequence"] for message in target.at("/up")]
    assert sequences == sorted(sequences)
    # The one that was down is told what has counted all the time.
    assert [short(message.document) for message in target.at("/down")[before:]] == [
        (kind, *ids) for kind, ids in model.delayed
    ]
    assert play.state("down")["waiting"] == 0


def begin(play: Play) -> None:
    """A leaderboard without a score, and two targets, one of which is down."""
    for row in play.db.execute("SELECT name FROM leaderboard.leaderboard").fetchall():
        play.bench.store.delete_board(row["name"], force=True)
    play.db.execute("UPDATE leaderboard.user_info SET is_banned = false")
    play.db.execute("DELETE FROM runner.webhook_event")
    play.bench.board()
    play.configure(up=RANKINGS, down=RANKINGS)
    play.target.answers.clear()
    play.tell()
    play.target.messages.clear()
    play.target.answers["/down"] = (500, {})


def change(play: Play, submit: Submit, model: Model, *, step: str, user: str, score_us: int) -> None:
    """Something happens on the leaderboard."""
    own = [item for item, owner, _ in model.scores if owner == user]
    if step == "submit" and user not in model.banned:
        model.scores.append((submit(user, score_us), user, score_us))
    elif step == "invalidate" and own:
        play.db.execute("SELECT runner.invalidate(%s, reason => 'x')", (own[-1],))
        model.scores = [score for score in model.scores if score[0] != own[-1]]
    elif step == "ban" and own:
        play.db.execute("UPDATE leaderboard.user_info SET is_banned = NOT is_banned WHERE id = %s", (user,))
        model.banned ^= {user}


def tell(play: Play, step: str) -> set[str]:
    """Tell all that waits, another sender after one that fails; the keys of messages whose answer was lost."""
    target = play.target
    count = len(target.at("/up"))
    if step == "die":
        play.die_while_telling("/up")
    elif step == "two":
        asyncio.run(two(play))
    else:
        target.answers["/up"] = {"lose the answer": None, "fail": (503, {})}.get(step, (204, {}))
        play.tell()
        del target.answers["/up"]
    lost = (
        {message.key for message in target.at("/up")[count:]} if step in ("die", "lose the answer", "fail") else set()
    )
    if lost:
        play.later("1 hour")
        play.tell()
    return lost


async def two(play: Play) -> None:
    """Two senders look at the same moment."""
    async with play.sender() as one, play.sender() as other:
        await asyncio.gather(one.look(), other.look())
        await asyncio.gather(one.finish(), other.finish())


def first_of_each(target: Target, path: str) -> list[Any]:
    """What a path was told, each message once."""
    documents: dict[str, Any] = {}
    for message in target.at(path):
        documents.setdefault(message.key, short(message.document))
    return list(documents.values())


def test_what_was_before_is_not_told_and_closed_boards_never(play: Play, submit: Submit, bench: Bench, db: Db) -> None:
    """A leaderboard that is made later is told from its beginning; one that becomes public from then on."""
    every = (*RANKINGS, "board.opened", "board.closed", "board.final", "host.lost", "host.back")
    bench.board()
    bench.register("gpu-07")
    first = submit("a", 9)
    play.configure(all=every, one=every)
    play.tell()
    assert play.target.messages == []

    bench.board("later")
    bench.board("closed")
    submit("a", 5, "closed")
    db.execute("UPDATE leaderboard.leaderboard SET visibility = 'closed' WHERE name = 'closed'")
    opened = submit("a", 5, "later")
    second = submit("b", 3)
    play.tell()
    assert told(play.target, "/all") == [
        ("record", second), ("top3", second, first), ("board.opened", "later"), ("record", opened), ("top3", opened),
    ]  # fmt: skip
    assert told(play.target, "/one") == told(play.target, "/all")

    play.target.messages.clear()
    db.execute("UPDATE leaderboard.leaderboard SET visibility = 'public' WHERE name = 'closed'")
    db.execute("UPDATE leaderboard.leaderboard SET deadline = now() WHERE name = 'identity'")
    # As after an outage of the database, and then for longer.
    for rests in (True, False):
        db.execute("UPDATE runner.host SET last_seen = now() - interval '61 seconds' WHERE name = 'gpu-07'")
        play.tell()
        db.execute("UPDATE runner.webhook_host SET noted_at = noted_at - interval '31 seconds' WHERE NOT %s", [rests])
        play.tell()
        db.execute("UPDATE runner.host SET last_seen = now()")
    sweeps.final(bench.store, "identity", "CPU", top=10, rounds=25, open_board=False)
    play_final(bench, lambda job, _: scored(1e-6 if job.validates == first else 2e-6), ("gpu-07",))
    play.tell()
    db.execute("UPDATE runner.host SET stopped_at = now(), last_seen = now() - interval '1 day'")
    play.tell()
    assert told(play.target, "/all") == [
        ("board.closed", "identity"), ("board.opened", "closed"), ("host.lost", "gpu-07"),
        ("final", "A", "B"), ("host.back", "gpu-07"),
    ]  # fmt: skip


def test_a_target_that_fails_is_tried_less_often_and_given_up_after_a_day(
    play: Play, submit: Submit, bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """It delays no other; what it asks for is obeyed; one that answers 410 is left alone, until it is tried."""
    bench.board()
    play.configure(bad=RECORDS, good=RECORDS)
    play.tell()
    first = submit("a", 9)
    play.target.answers["/bad"] = (500, {})
    for pause_s in (5, 10, 20, 40, 80, 160, 320, 600, 600):
        before = play.db.execute("SELECT now()").fetchall()[0]["now"]
        play.tell()
        row = play.db.execute("SELECT retry_at, now() FROM runner.webhook WHERE name = 'bad'").fetchall()[0]
        assert row["retry_at"] - row["now"] <= timedelta(seconds=pause_s) <= row["retry_at"] - before
        play.tell()
        play.later("10 minutes")
    assert len(play.target.at("/bad")) == 9
    assert {message.key for message in play.target.at("/bad")} == {play.target.at("/good")[0].key}
    assert told(play.target, "/good") == [("record", first)]
    assert (play.state("bad")["state"], play.state("bad")["reason"]) == ("failing", "answer 500")
    assert play.state("good")["waiting"] == 0

    # An hour of it is nothing; a day later new ones are tried, old ones are not.
    play.later("1 day")
    second = submit("b", 5)
    play.tell()
    assert (play.state("bad")["given_up"], play.state("bad")["waiting"]) == (1, 1)
    assert "webhook_events_given_up" in capsys.readouterr().out
    play.target.answers["/bad"] = (429, {"Retry-After": "1800"})
    play.later("10 minutes")
    play.tell()
    play.later("29 minutes")
    play.target.answers["/bad"] = (204, {})
    play.tell()
    assert play.state("bad")["waiting"] == 1
    play.later("1 minute")
    play.db.execute("UPDATE leaderboard.user_info SET user_name = 'Bee' WHERE id = 'b'")
    play.tell()
    assert told(play.target, "/bad")[-1] == ("record", second)
    assert play.target.at("/bad")[-1].document["data"]["user"] == "Bee"
    assert (play.state("bad")["state"], play.state("bad")["waiting"]) == ("up", 0)

    play.target.answers["/bad"] = (410, {})
    submit("c", 3)
    play.tell()
    play.target.answers["/bad"] = (204, {})
    third = submit("d", 2)
    play.tell()
    assert (play.state("bad")["state"], told(play.target, "/good")[-1]) == ("ended", ("record", third))
    assert play.db.execute("SELECT runner.test_webhook('bad')").fetchone()
    play.tell()
    assert (told(play.target, "/bad")[-1], play.state("bad")["state"]) == (("test", None), "up")
    # What is a week old goes.
    play.later("8 days")
    play.tell()
    assert play.db.execute("SELECT id FROM runner.webhook_event").fetchall() == []


@pytest.mark.parametrize(("status", "kept_back"), [(400, 1), (413, 2), (422, 2)])
def test_a_message_that_is_refused_keeps_no_other_back(
    play: Play, submit: Submit, bench: Bench, status: int, kept_back: int
) -> None:
    """It is given up once the target takes a later one; a target that takes none is told all of them when it does."""
    bench.board()
    play.configure(chat=RECORDS)
    play.tell()
    play.target.refuses = {f'"user": "BAD{number}"': status for number in range(kept_back)}
    bad = [submit(f"bad{number}", 90 - number) for number in range(kept_back)]
    good = [submit("a", 9), submit("b", 8)]
    for _ in range(4):
        play.tell()
        assert (told(play.target, "/chat")[-1], play.state("chat")["given_up"]) == (("record", bad[0]), 0)
        play.later("10 minutes")
    play.tell()
    assert [key for key in told(play.target, "/chat") if key[1] in good] == [("record", item) for item in good]
    state = play.state("chat")
    assert (state["state"], state["waiting"], state["given_up"]) == ("up", 0, kept_back)

    play.target.refuses = {"record.new": status}
    late = [submit("c", 7), submit("d", 6), submit("e", 5)]
    for _ in range(8):
        play.tell()
        play.later("10 minutes")
    assert (play.state("chat")["waiting"], play.state("chat")["given_up"]) == (3, kept_back)
    play.target.refuses = {}
    play.tell()
    assert told(play.target, "/chat")[-3:] == [("record", item) for item in late]


def test_a_boards_own_target_reaches_public_addresses_alone(
    play: Play, submit: Submit, bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless the configuration names the network; no redirect is followed; it hears of its leaderboard and no other."""
    bench.board()
    bench.board("other")
    play.tell()
    monkeypatch.setenv("DATABASE_URL", bench.url)
    for name, host in (("named", "localhost"), ("numbered", "127.0.0.1"), ("mapped", "[::ffff:127.0.0.1]")):
        url = f"http://{host}:{play.target.port}/{name}"
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{url}\n"))
        assert main(["webhook", "add", "identity", name, "--format", "json", "--event", "record.new"]) == 0
    secret = capsys.readouterr().out.split()[0]
    # What no check of an address or a secret has foreseen.
    odd = {"label": ("http://a..b/", SECRET), "port": ("http://10.1.1.1:99999/", SECRET), "secret": (url, "whsec_x")}
    for name, (address, key) in odd.items():
        play.db.execute(
            "INSERT INTO runner.webhook (name, leaderboard_id, url, secret, format, events)"
            " SELECT %s, id, %s, %s, 'json', '{record.new}' FROM leaderboard.leaderboard WHERE name = 'identity'",
            (name, address, key),
        )
    record = submit("a", 9)
    submit("a", 9, "other")
    play.tell()
    assert play.target.messages == []
    assert {play.state(name)["state"] for name in ("named", "numbered", "mapped", *odd)} == {"failing"}
    assert "no public address" in play.state("numbered")["reason"]

    play.networks = "127.0.0.0/8"
    play.later("1 hour")
    play.tell()
    assert sorted(message.path for message in play.target.messages) == ["/named", "/numbered"]
    (message,) = play.target.at("/named")
    assert message.headers["host"] == f"localhost:{play.target.port}"
    assert short(message.document) == ("record", record)
    at_s = int(message.headers["webhook-timestamp"])
    assert messages.headers(message.key, at_s, message.body, secret).items() <= {
        "Content-Type": message.headers["content-type"], **message.headers
    }.items()  # fmt: skip

    play.target.answers["/named"] = (307, {"Location": play.target.url("/elsewhere")})
    submit("b", 5)
    play.tell()
    assert play.target.at("/elsewhere") == []
    capsys.readouterr()
    assert main(["webhook", "list", "--json"]) == 0
    listed = {line["name"]: line for line in json.loads(capsys.readouterr().out)}
    assert listed["named"]["reason"] == "answer 307, a redirect, which is not followed"
    assert not any(str(play.target.port) in str(line) for line in listed.values())
    assert main(["webhook", "remove", "named"]) == 0
    assert main(["webhook", "remove", "named"]) == 2
    bench.store.delete_board("identity", force=True)
    play.tell()
    assert play.db.execute("SELECT name FROM runner.webhook").fetchall() == []


def test_a_leaderboard_that_is_not_there_is_said(
    play: Play, bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """When the sender begins, and in the list, until it is made: a target may name it before."""
    bench.board()
    monkeypatch.setenv("DATABASE_URL", play.bench.url)
    named = {"all": None, "one": ["identity"], "two": ["identity", "typo", "later"]}
    targets = [
        {"name": name, "format": "json", "events": ["record.new"], "boards": boards} for name, boards in named.items()
    ]
    missing = play.db.execute("SELECT * FROM runner.set_webhooks(%s::jsonb)", (json.dumps(targets),)).fetchall()
    assert missing == [{"name": "two", "missing_boards": ["later", "typo"]}]
    assert main(["webhook", "list"]) == 0
    assert "no leaderboard: later, typo" in " ".join(capsys.readouterr().out.split())
    bench.board("later")
    assert main(["webhook", "list", "--json"]) == 0
    listed = {line["name"]: line["missing_boards"] for line in json.loads(capsys.readouterr().out)}
    assert listed == {"all": [], "one": [], "two": ["typo"]}


def test_processes_that_are_killed_and_two_at_once(
    play: Play, submit: Submit, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kernel-runner webhook run` with its files, as systemd starts it; SIGKILL while a message is told."""
    bench.board()
    play.tell()
    (tmp_path / "secrets").write_text(f'json.url = "{play.target.url("/json")}"\njson.secret = "{SECRET}"\n', "utf-8")
    (tmp_path / "config.toml").write_text(
        f'webhook_secrets_file = "{tmp_path}/secrets"\ngateway_public_url = "https://kernels.example"\n'
        '[[webhooks]]\nname = "json"\nformat = "json"\nevents = ["record.new"]\n'
        '[[webhooks]]\nname = "chat"\nformat = "discord"\nevents = ["record.new"]\n'
        f'url = "{play.target.url("/chat")}"\n',
        "utf-8",
    )
    command = [sys.executable, "-m", "runner.cli", "--config", str(tmp_path / "config.toml"), "webhook", "run"]
    environment = {**os.environ, "DATABASE_URL": play.url}
    held = play.target.held["/json"] = threading.Event()
    processes = [subprocess.Popen(command, env=environment)]
    try:
        wait_until(lambda: play.db.execute("SELECT FROM runner.webhook").fetchall(), "the targets are there")
        ids = [submit("a", 9)]
        wait_until(lambda: play.target.at("/json"), "the message is told")
        wait_until(lambda: play.target.at("/chat"), "the other is not delayed")
        processes[0].kill()
        processes[0].wait()
        held.set()
        play.later("1 minute")
        processes += [subprocess.Popen(command, env=environment) for _ in range(2)]
        ids += [submit("a", score) for score in range(8, 2, -1)]
        wait_until(lambda: first_of_each(play.target, "/json") == [("record", item) for item in ids], "all are told")
        monkeypatch.setenv("DATABASE_URL", bench.url)
        assert main(["webhook", "test", "json"]) == 0
        play.target.answers["/chat"] = (404, {})
        assert main(["webhook", "test", "chat"]) == 1
    finally:
        for process in processes[1:]:
            process.send_signal(signal.SIGTERM)
        codes = [process.wait() for process in processes]
    assert codes == [-signal.SIGKILL, 0, 0]
    keys = [message.key for message in play.target.at("/json")]
    # The answer to the first was lost with the process.
    assert keys[0] == keys[1]
    assert len(set(keys)) == len(keys) - 1
    assert play.target.at("/json")[0].document["data"]["url"] == "https://kernels.example/board/identity?gpu=CPU"
    (chat, *_) = play.target.at("/chat")
    assert chat.document == {
        "content": "New record of identity (CPU): 9.00 µs by A, the first score. https://kernels.example/board/identity?gpu=CPU",
        "allowed_mentions": {"parse": []},
    }
    assert "webhook-signature" not in chat.headers
