"""The rank checkers of a task of several ranks, as the judge talks to them.

What one does is in `rank_checker`. Who starts the judge starts them, and kills them when the judge has ended. A rank
checker that ends is a fault of ours, or of the task whose code ran in it, never of a submission.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from sandbox.protocol import AUTHOR_PAGE_BYTES, AuthorExit
from tasks.harness.shared.wire import MAX_FROM_JUDGE_BYTES, Channel, PeerClosed, encode

from .author_code import place
from .faults import Fault, too_late
from .gather import gather
from .problem import TaskFault

#: The references of all ranks wait for each other. After one failed, the others have so long to end.
_GRACE_NS = 20_000_000_000

#: By rank.
Answers = dict[int, Mapping[str, Any]]


class RankCheckers:
    """One for each rank. Every method may raise Fault and TaskFault, or RuntimeError if one has ended."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        """`sockets`: to each, by rank."""
        self._all = [
            Channel(sock, max_bytes=MAX_FROM_JUDGE_BYTES, accept_descriptors=True, wake_fd=None) for sock in sockets
        ]
        #: Outlive a rank checker, and say whose code ended it.
        self._pages = [os.memfd_create("author page") for _ in sockets]
        for page in self._pages:
            os.ftruncate(page, AUTHOR_PAGE_BYTES)
        #: Processor time of their answers so far: of the one that needed most, each time.
        self.used_ns = 0

    def close(self) -> None:
        """Close the sockets, at which rank checkers end. One that hangs is killed after the judge has ended."""
        for channel in self._all:
            channel.close()
        for page in self._pages:
            os.close(page)
        self._all, self._pages = [], []

    def begin(self, messages: Sequence[bytes], *, deadline_ns: int) -> None:
        """Say the first to each, with its page."""
        self.tell(messages, self._pages, deadline_ns=deadline_ns)

    def ask(self, message: Mapping[str, Any], *expected: str, deadline_ns: int) -> Answers:
        """Say the same to all; what each one answers."""
        self.tell([encode(message)] * len(self._all), deadline_ns=deadline_ns)
        return self.hear(*expected, deadline_ns=deadline_ns)

    def tell(self, messages: Sequence[bytes], descriptors: Sequence[int] | None = None, *, deadline_ns: int) -> None:
        """Say something to each, with a descriptor of its own."""
        for rank, (channel, message) in enumerate(zip(self._all, messages, strict=True)):
            try:
                channel.send(message, () if descriptors is None else (descriptors[rank],), deadline_ns=deadline_ns)
            except PeerClosed as error:
                raise self._ended(rank) from error
            except TimeoutError as error:
                raise too_late() from error

    def hear(self, *expected: str, deadline_ns: int) -> Answers:
        """One answer of each. A descriptor that comes with it is the answer's `fd`."""
        heard = gather(
            self._all,
            good=lambda message: message["op"] in expected and message["op"] != "raised",
            deadline_ns=deadline_ns,
            grace_ns=_GRACE_NS,
        )
        self.used_ns += max((one.message["used_ns"] for one in heard if one.error is None), default=0)
        answers: Answers = {}
        for one in heard:
            if one.error is not None:
                raise self._ended(one.index) from one.error
            answer = one.message
            if answer["op"] == "task_fault":
                raise TaskFault(f"rank {one.index}: {answer['text']}")
            if answer["op"] == "fault":
                raise Fault(answer["verdict"], answer["text"], gone=answer["gone"]).of_rank(one.index)
            answers[one.index] = dict(answer) | ({"fd": one.descriptors[0]} if one.descriptors else {})
        if len(answers) < len(self._all):
            stuck = {rank: answer["text"] for rank, answer in answers.items() if answer["op"] == "raised"}
            for rank, text in sorted(stuck.items()):
                raise Fault("wrong_answer", f"the output could not be compared: {text}").of_rank(rank, gone=True)
            raise too_late()
        return dict(sorted(answers.items()))

    def _ended(self, rank: int) -> Exception:
        """Whose fault it is that a rank checker has ended."""
        author_exit = AuthorExit.read(self._pages[rank], f"rank {rank}")
        if author_exit is not None:
            return TaskFault(f"{replace(author_exit, place=place())} (reference.py)")
        return RuntimeError(f"the rank checker of rank {rank} has ended; see its words above")

    def check(self, *, deadline_ns: int) -> str:
        """Have each check its rank's output; the messages of check_implementation."""
        answers = self.ask({"op": "check"}, "checked", "raised", deadline_ns=deadline_ns)
        raised = {rank: answer["text"] for rank, answer in answers.items() if answer["op"] == "raised"}
        if raised:
            self._blame_for_raising(raised, deadline_ns)
        wrong = [rank for rank, answer in answers.items() if not answer["good"]]
        if wrong:
            others = f"; wrong too: {named(wrong[1:])}" if wrong[1:] else ""
            raise Fault("wrong_answer", f"{answers[wrong[0]]['text']}{others}").of_rank(wrong[0])
        return "; ".join(dict.fromkeys(answer["text"] for answer in answers.values() if answer["text"]))

    def _blame_for_raising(self, raised: Mapping[int, str], deadline_ns: int) -> NoReturn:
        """Blame for check_implementation that raised: the output's, if its structure is not the reference's."""
        same = self.ask({"op": "structure"}, "structured", deadline_ns=deadline_ns)
        for rank, text in sorted(raised.items()):
            if not same[rank]["same"]:
                raise Fault("wrong_answer", f"the output could not be compared: {text}").of_rank(rank)
        rank, text = min(raised.items())
        raise TaskFault(f"rank {rank}: the task's check_implementation raised {text}")


def named(ranks: Sequence[int]) -> str:
    """Ranks in a sentence."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
