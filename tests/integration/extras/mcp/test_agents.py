"""Agents work on a real site: the server as a process, a gateway as a process, a daemon with real containers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psycopg
import pytest
from mcp.server.mcpserver.exceptions import ToolError

from runner.base.model import JobState
from runner.extras.mcp.gateway import Gateway
from tests.integration.extras.gateway.conftest import add_user
from tests.integration.extras.gateway.contract.site import LIMIT_S, SHORT_S, SLOW, TIMED_CALLS, WRONG, gateway_of
from tests.integration.extras.mcp.agent import Agent, agent
from tests.plugins.live import ROOT, LiveRunner, live_runner
from tests.support.ports import free_port

pytestmark = pytest.mark.anyio

TASK: Final = ROOT / "tasks" / "problems" / "vectoradd"
HANGS: Final = "import time\n\n\ndef custom_kernel(data):\n    time.sleep(10_000)\n"
#: Far slower than any noise.
SLEEPS: Final = "import time\n\n\ndef custom_kernel(data):\n    time.sleep(0.05)\n    return data[0] + data[1]\n"
TOKEN: Final = "ada-token"


@dataclass
class Site:
    """A daemon with its boards, and a gateway that can be stopped and started at one address."""

    live: LiveRunner
    port: int = field(default_factory=free_port)
    gateway: ExitStack = field(default_factory=ExitStack)

    @property
    def url(self) -> str:
        """The gateway's address."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the gateway."""
        self.gateway.enter_context(gateway_of(self.live, self.port))

    def sql(self, statement: str, *values: object) -> None:
        """A statement as the owner of the database."""
        with psycopg.connect(self.live.database_url, autocommit=True) as connection:
            connection.execute(statement.encode(), values or None)


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of coroutine tests."""
    return "asyncio"


@pytest.fixture(scope="module")
def site(create_database: Callable[[str | None], str], migrated_template: str) -> Iterator[Site]:
    """One site for all tests; boards `vectoradd`, the first in the list, and `short`, where time runs out soon."""
    with live_runner(create_database(migrated_template), cpu_slots=2, warm_containers=1) as live:
        site = Site(live)
        for name, timeout_s in (("short", SHORT_S), ("vectoradd", LIMIT_S), ("over", LIMIT_S), ("closed", LIMIT_S)):
            live.board(TASK, name=name, timeout_s=timeout_s, timed_calls=TIMED_CALLS)
        site.sql("UPDATE leaderboard.leaderboard SET deadline = now() + interval '2 days' WHERE name = 'short'")
        site.sql("UPDATE leaderboard.leaderboard SET deadline = now() - interval '1 day' WHERE name = 'over'")
        site.sql("UPDATE leaderboard.leaderboard SET visibility = 'closed' WHERE name = 'closed'")
        for user in ("ada", "bob"):
            add_user(live.database_url, user)
        with site.gateway:
            site.start()
            yield site


async def test_an_agent_goes_from_the_list_to_the_ranking(site: Site, tmp_path: Path) -> None:
    """It takes names from answers, mends what is said to be wrong, and reads few characters on the way."""
    async with agent(url=site.url, token=TOKEN, home=tmp_path, roots=[tmp_path]) as ada:
        listed = await ada.call("list_leaderboards")
        assert [board["leaderboard"] for board in listed["leaderboards"]] == ["vectoradd", "short"]
        task = await ada.call("read_leaderboard")
        assert "float16" in task["description"]
        assert {"reference.py", "utils.py", "Triton"} <= {file["name"] for file in task["files"]}
        reference = await ada.call("read_leaderboard_file", name="reference.py")
        assert "def ref_kernel" in reference["text"]

        wrong = await ada.result(await ada.call("submit", mode="test", source=WRONG.decode()))
        assert (wrong["verdict"], wrong["runs"][0]["passed"]) == ("wrong_answer", False)
        failure = wrong["runs"][0]["failures"][0]
        assert failure["tolerance"] == "1e-08 + 1e-05 * |expected|"
        difference = failure["differences"][0]
        # The task's wrong solution leaves the last element as it was.
        assert (failure["arguments"], difference["index"]) == ("seed: 8211; size: 31", "(30, 30)")
        assert float(difference["got"]) != float(difference["expected"])
        assert "blocks do not divide" in wrong["next"]

        (tmp_path / "fast.py").write_text(task["template"], encoding="utf-8")
        right = await ada.result(await ada.call("submit", mode="test", path="fast.py"))
        assert (right["verdict"], "mode leaderboard" in right["next"]) == ("accepted", True)
        ranked = await ada.result(await ada.call("submit", mode="leaderboard", path="fast.py"))
        assert (ranked["verdict"], ranked["secret_run_passed"]) == ("accepted", {"CPU": True})
        assert "compare(" in ranked["next"]
        assert any("submission" in line for line in ada.progress)

        ranking = await ada.call("ranking", gpu_type=task["gpu_types"][0]["gpu_type"])
        (place,) = ranking["places"]
        assert (place["rank"], place["yours"], place["submission_id"]) == (1, True, ranked["submission_id"])
        mine = await ada.call("my_submissions", leaderboard="VectorAdd")
        assert [each["verdict"] for each in mine["submissions"]] == ["accepted", "accepted", "wrong_answer"]
        # Less than a model reads of one long file.
        assert ada.read < 12_000


async def test_times_are_compared_and_profiles_are_text(site: Site, tmp_path: Path) -> None:
    """A kernel that sleeps is slower in every case; one and the same cannot be told from itself. An older client."""
    async with agent(url=site.url, token=TOKEN, home=tmp_path, mode="legacy") as ada:
        place = {"leaderboard": "vectoradd", "gpu_type": "CPU"}
        fast = (TASK / "templates/torch_add.py").read_text(encoding="utf-8")
        modes = {"leaderboard": fast, "benchmark": SLEEPS, "profile": fast}
        sent = [await ada.call("submit", **place, mode=mode, source=modes[mode], wait_s=0) for mode in modes]
        best, slow, profile = await asyncio.gather(*(ada.result(each) for each in sent))
        assert "ms" in slow["runs"][0]["times"][0]["mean"]
        with_best = await ada.call("compare", submission_id=slow["submission_id"])
        assert {case["this_is"] for case in with_best["cases"]} == {"slower"}
        assert all(case["times_other"] > 1 for case in with_best["cases"])
        ids = {"submission_id": slow["submission_id"], "with_submission_id": best["submission_id"]}
        other_way = await ada.call("compare", **dict(zip(ids, reversed(ids.values()), strict=True)))
        assert {case["this_is"] for case in other_way["cases"]} == {"faster"}
        itself = await ada.call("compare", **dict.fromkeys(ids, slow["submission_id"]))
        assert {case["this_is"] for case in itself["cases"]} == {"cannot be told"}
        assert "no times on H100" in await ada.refusal("compare", **ids, gpu_type="H100")
        site.sql(
            "UPDATE leaderboard.submission SET leaderboard_id = l.id FROM leaderboard.leaderboard l"
            " WHERE l.name = 'over' AND submission.id = %s",
            slow["submission_id"],
        )
        assert "is to vectoradd, not to over" in await ada.refusal("compare", **ids)

        name = next(name for name in profile["files"] if name.endswith("/report"))
        report = await ada.call("read_submission_file", submission_id=profile["submission_id"], name=name)
        assert "aten::add" in report["text"]
        source = await ada.call("read_submission_file", submission_id=profile["submission_id"], name="source")
        assert (source["text"], "next_offset" in source) == (fast, False)


async def test_cancelling_a_call_leaves_the_submission_unless_it_is_to_stop(site: Site, tmp_path: Path) -> None:
    """A hanging one goes on after its call, until `cancel`; with `stop_with_call` it ends with it."""

    async def begin(ada: Agent, **more: object) -> int:
        """Submit, and cancel the call once the submission makes progress; the submission's id."""
        started = asyncio.Event()
        place = {"leaderboard": "vectoradd", "gpu_type": "CPU", "mode": "test", "source": HANGS}
        ada.on_progress = started.set
        call = asyncio.create_task(ada.call("submit", **place, **more))
        await started.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert call.cancelled()
        return int((await ada.call("my_submissions"))["submissions"][0]["submission_id"])

    async with agent(url=site.url, token=TOKEN, home=tmp_path) as ada:
        left = await begin(ada)
        assert (await ada.call("get_result", submission_id=left, wait_s=0))["state"] == "waiting"
        stopped = await begin(ada, stop_with_call=True)
        assert (await ada.result(await ada.call("get_result", submission_id=stopped)))["error"] == "cancelled"
        assert (await ada.call("get_result", submission_id=left, wait_s=0))["state"] == "waiting"
        await ada.call("cancel", submission_id=left)
        assert (await ada.result(await ada.call("get_result", submission_id=left)))["error"] == "cancelled"


async def test_a_wait_outlives_the_gateway(site: Site, tmp_path: Path) -> None:
    """It says that the gateway is away, and ends with the submission once another gateway is there."""
    async with agent(url=site.url, token=TOKEN, home=tmp_path) as ada:
        place = {"leaderboard": "vectoradd", "gpu_type": "CPU", "mode": "test", "source": HANGS}
        sent = await ada.call("submit", **place, wait_s=0)
        heard, away = asyncio.Event(), asyncio.Event()

        def listen() -> None:
            (away if "no answer" in ada.progress[-1] else heard).set()

        ada.on_progress = listen
        call = asyncio.create_task(ada.call("get_result", submission_id=sent["submission_id"], wait_s=600))
        await heard.wait()
        await asyncio.to_thread(site.gateway.close)
        await away.wait()
        heard.clear()
        await asyncio.to_thread(site.start)
        await heard.wait()
        await asyncio.to_thread(site.live.store.cancel, sent["submission_id"])
        assert (await call)["error"] == "cancelled"


async def test_what_fails_is_a_sentence_that_says_what_to_do(site: Site, tmp_path: Path) -> None:
    """Time that runs out, wrong names, ended and closed leaderboards, files outside, limits, another's submission."""
    (tmp_path / "home").mkdir()
    (tmp_path / "outside.py").write_text("", encoding="utf-8")
    (tmp_path / "home" / "id_rsa").write_text("", encoding="utf-8")
    (tmp_path / "home" / "link.py").symlink_to(tmp_path / "outside.py")
    site.sql(
        "INSERT INTO leaderboard.rate_limit (leaderboard_id, mode_category, max_submissions_per_hour)"
        " SELECT id, 'test', 1 FROM leaderboard.leaderboard WHERE name = 'short'"
    )
    place = {"leaderboard": "vectoradd", "gpu_type": "CPU", "mode": "test", "source": "pass\n"}

    async with agent(url=site.url, token="bob-token", home=tmp_path / "home") as bob:
        slow = await bob.call("submit", **{**place, "leaderboard": "short", "source": SLOW.decode()})
        slow = await bob.result(slow)
        assert (slow["verdict"], "Compile and tune once" in slow["next"]) == ("time_limit", True)
        refused = {
            ("submit", "leaderboard", "short"): "Try again in",
            ("submit", "leaderboard", "over"): "closed at",
            ("submit", "leaderboard", "nowhere"): "list_leaderboards",
            ("read_leaderboard", "leaderboard", "closed"): "list_leaderboards",
            ("submit", "gpu_type", "H100"): "Choose from: CPU",
            ("read_leaderboard", "gpu_type", "H100"): "choose one of: CPU",
            **{
                ("submit", name, word): f"nothing of the name {word!r}"
                for name in ("leaderboard", "gpu_type")
                for word in ("", ".", "..")
            },
            ("submit", "file_name", "id_rsa"): "no file of a kernel",
            ("submit", "mode", "fast"): "'test', 'benchmark', 'leaderboard' or 'profile'",
            ("submit", "source", None): "give source",
            ("submit", "path", "x.py"): "not both",
            ("get_result", "submission_id", 1): "Not authorized",
            ("get_result", "submission_id", 10**6): "my_submissions",
            ("compare", "submission_id", slow["submission_id"]): "mode benchmark",
            ("read_submission_file", "submission_id", slow["submission_id"]): "it has: source",
        }
        for (tool, name, value), words in refused.items():
            properties = bob.tools[tool].input_schema["properties"]
            arguments = {key: word for key, word in {**place, "name": "x"}.items() if key in properties}
            assert words in await bob.refusal(tool, **{**arguments, name: value}), (tool, name, value)
        paths = {
            **dict.fromkeys(("../outside.py", "link.py"), "outside"),
            **dict.fromkeys(("nothing.py", "id_rsa"), "no file"),
            "x" * 9999: "cannot be read",
            "\0.py": "no path",
        }
        for path, words in paths.items():
            assert words in await bob.refusal("submit", **{**place, "source": None}, path=path)
    assert site.live.store.submission(1).status.state is JobState.DONE


async def test_a_server_without_its_settings_says_which(site: Site, tmp_path: Path) -> None:
    """It starts, so that the sentence reaches the model. A token from popcorn-cli's file counts, too."""
    (tmp_path / ".popcorn.yaml").write_text(f"cli_id: {TOKEN}\n", encoding="utf-8")
    (tmp_path / "empty").mkdir()

    async def refused(url: str | None, token: str | None, tool: str, *words: str) -> None:
        async with agent(url=url, token=token, home=tmp_path / "empty") as session:
            sentence = await session.refusal(tool)
            assert all(word in sentence for word in words), sentence

    async def from_the_file() -> None:
        async with agent(url=site.url, token=None, home=tmp_path) as ada:
            assert "submissions" in await ada.call("my_submissions")

    async def unusable(url: str, token: str, words: str) -> None:
        with pytest.raises(ToolError, match=re.escape(words)):
            await Gateway(url=url, token=token).read("mine")

    async def behind(head: str, words: str, body: str = "<p>") -> None:
        """A proxy or another service answers in the gateway's place."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.1 {head}\r\nConnection: close\r\n\r\n{body}".encode())
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as proxy:
            port = proxy.sockets[0].getsockname()[1]
            await unusable(f"http://127.0.0.1:{port}", TOKEN, words)

    await asyncio.gather(
        behind("502 Bad Gateway", "does not work now (answer 502)"),
        behind("301 Moved\r\nLocation: https://k.example/", "leads on to https://k.example/"),
        behind("404 Not Found", "no gateway of kernel-runner"),
        behind("404 Not Found", "no gateway of kernel-runner", '{"detail":"Not Found"}'),
        unusable(site.url, "\u00e9t\u00e9", "copy it again"),
        unusable(site.url, "a\nb", "copy it again"),
        unusable("http://127.0.0.1:99999", TOKEN, "cannot be used"),
        refused(site.url, "wrong-token", "my_submissions", "does not know this token", "user token"),
        refused(site.url, None, "my_submissions", "No token is set", "POPCORN_CLI_ID"),
        refused(None, TOKEN, "list_leaderboards", "No address", "POPCORN_API_URL"),
        refused("http://127.0.0.1:1", TOKEN, "list_leaderboards", "gives no answer", "check the address"),
        refused("kernels.example", TOKEN, "list_leaderboards", "cannot be used", "https://HOST"),
        from_the_file(),
    )
