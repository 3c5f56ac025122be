"""Boot kind `pair` in real containers: a judge and a worker written for the test, joined by init."""

from __future__ import annotations

import pytest

from sandbox.protocol import AuthorExit, PairRequest
from sandbox.spec import Ending
from tests.integration.sandbox.conftest import WORKERS, Workshop

#: What a worker or a rank checker has.
DESCRIPTORS = ["/dev/null", "pipe", "pipe", "socket"]


def test_request_frames_and_socketpair_work(workshop: Workshop) -> None:
    """The judge gets the payload, talks to the worker, and its progress, step and artifact frames come back."""
    judge = """
payload = request()
peer = line()
peer.sendall(payload['question'].encode())
answer = peer.recv(100).decode()
say('progress', phase='test', done=1, total=2)
step('test', answer)
say('artifact', name='trace', media_type='text/plain', data_b64='aGk=')
"""
    worker = "line.sendall(line.recv(100)[::-1]); line.recv(1)"
    report = workshop.pair(judge, worker, payload={"question": "abc"})
    assert report.ok, report.message
    assert report.steps[0].stdout == "cba"
    assert report.artifacts == (("trace", "text/plain", b"hi"),)
    assert report.outcome.ending is Ending.COMPLETED


def test_a_step_says_which_artifacts_have_no_room_in_the_report(workshop: Workshop) -> None:
    """A profile without a file that its page would have says why."""
    judge = """
request()
for number in range(3):
    say('artifact', name=f'trace {number}', media_type='text/plain', data_b64='aGkh' * 100_000)
for name in ('first', 'second'):
    step(name, '')
"""
    spec = workshop.spec(workshop.pair_boot(judge, "line.recv(1)"), report_bytes=2 << 20)
    report = workshop.run(spec, PairRequest(payload={}))
    assert [name for name, _, _ in report.artifacts] == ["trace 0"]
    assert [step.stderr.count("no artifact") for step in report.steps] == [2, 0]
    assert "sandbox: no artifact 'trace 2': the report has no room for it" in report.steps[0].stderr


def test_the_worker_gets_one_descriptor_and_its_output_goes_to_the_judge(workshop: Workshop) -> None:
    """Worker: socket, /dev/null, two pipes. Judge: reads those pipes; homes and environments are apart."""
    judge = """
request()
peer = line()
peer.recv(1)
out = os.read(int(os.environ['KR_WORKER_STDOUT_FD']), 65536).decode()
err = os.read(int(os.environ['KR_WORKER_STDERR_FD']), 65536).decode()
step('test', json.dumps([json.loads(out), err, [os.getuid(), os.getcwd(), os.environ['TMPDIR']]]))
"""
    worker = """
print(json.dumps({'fds': open_descriptors(), 'uid': os.getuid(), 'cwd': os.getcwd(),
                  'oom': open('/proc/self/oom_score_adj').read().strip(),
                  'kr': [k for k in os.environ if k[:3] == 'KR_']}), flush=True)
print('to stderr', file=sys.stderr, flush=True)
line.sendall(b'x')
line.recv(1)
"""
    seen, err, of_judge = workshop.said(judge, worker)
    uid = seen.pop("uid")
    assert uid in WORKERS
    assert of_judge == [uid - 1, "/judge", "/judge"]
    assert err == "to stderr\n"
    assert seen == {"fds": DESCRIPTORS, "cwd": "/work", "oom": "1000", "kr": ["KR_JUDGE_FD"]}


#: Writes to each name of stdout and stderr, as a program, a log file or a shell script does; reads none of them.
BY_NAME = """
import errno, subprocess
for name in ('/dev/stdout', '/dev/stderr', '/dev/fd/1', '/proc/self/fd/2', '/proc/thread-self/fd/1'):
    with open(name, 'w') as file:
        file.write(name + '\\n')
    subprocess.run(['/bin/sh', '-c', 'echo "$0" > "$0"', name], check=True)
    try:
        os.open(name, os.O_RDWR)
    except OSError as error:
        assert error.errno == errno.EACCES
    else:
        raise AssertionError(name)
"""


def test_streams_can_be_opened_by_name(workshop: Workshop) -> None:
    """To write, as at any terminal, though the pipes are root's (moby #31243): by worker, judge and steps."""
    judge = (
        "request()\n"
        + BY_NAME.replace("/dev/stdout", "/dev/stderr").replace("fd/1", "fd/2")
        + ("line().recv(1); step('test', os.read(int(os.environ['KR_WORKER_STDOUT_FD']), 65536).decode())")
    )
    report = workshop.pair(judge, f"{BY_NAME}line.sendall(b'x'); line.recv(1)")
    assert report.ok, report.message
    assert [report.steps[0].stdout.count(name) for name in ("/dev/stdout", "/dev/fd/1")] == [2, 2]
    step, _ = workshop.program(f"import os\n{BY_NAME}")
    assert (step.exit_code, step.stderr.count("/dev/stderr")) == (0, 2), step.stderr


def test_the_judge_hears_how_the_worker_ended_and_its_daemons_are_dead(workshop: Workshop) -> None:
    """After the worker's exit its leftovers are killed; then comes `worker_exit`, once."""
    judge = """
request()
line().sendall(b'go')
step('test', json.dumps([hear(), sum(1 for p in os.listdir('/proc') if p.isdigit())]))
"""
    worker = """
line.recv(2)
if os.fork() == 0:
    os.setsid()
    time.sleep(1000)
os.kill(os.getpid(), 11)
"""
    # Init and the judge.
    assert workshop.said(judge, worker) == [{"type": "worker_exit", "rank": 0, "exit_code": None, "signal": 11}, 2]


#: For a judge: the lines to its workers and to its rank checkers, by rank; the first is there from the start.
LINES = """
payload = request()
lines = [line(), *(next_line() for _ in range(2 * payload['ranks'] - 1))]
checkers = lines[payload['ranks']:]
del lines[payload['ranks']:]
"""


def test_a_request_for_ranks_gets_a_worker_and_a_rank_checker_for_each(workshop: Workshop) -> None:
    """Each has a line of its own, the account of worker or judge, and nothing more than that; then none comes."""
    judge = (
        LINES
        + """
seen = []
for peer in [*lines, *checkers]:
    peer.sendall(b'x')
    seen.append(json.loads(peer.recv(10000)))
step('test', json.dumps([seen, socket.recv_fds(further, 1, 1)[0].decode()]))
"""
    )
    look = """
line.recv(1)
line.sendall(json.dumps([os.getpid(), os.getuid(), os.getcwd(), sorted(open_descriptors())]).encode())
line.recv(1)
"""
    seen, more = workshop.said(judge, look, look, payload={"ranks": 3}, ranks=3)
    assert len({pid for pid, *_ in seen}) == 6
    _, worker, *_ = seen[0]
    assert worker in WORKERS
    accounts = [[worker, "/work", DESCRIPTORS]] * 3 + [[worker - 1, "/judge", DESCRIPTORS]] * 3
    assert [rest for _, *rest in seen] == accounts
    assert more == ""


def test_what_a_rank_checker_says_last_is_in_the_message_of_a_judge_that_fails(workshop: Workshop) -> None:
    """Its stderr, and its stdout, are the judge's stderr."""
    judge = LINES + "[checker.recv(1) for checker in checkers]; sys.exit(1)"
    checker = "print('the first words', flush=True); sys.stderr.write('the last words')"
    report = workshop.pair(judge, "line.recv(1)", checker, payload={"ranks": 1}, ranks=1)
    assert report.ok is False
    assert "the first words\nthe last words" in (report.message or "")


def test_when_one_rank_ends_all_are_killed_and_the_judge_hears_which_was_first(workshop: Workshop) -> None:
    """No rank outlives another, nor do the processes it started; the frame comes once."""
    judge = (
        LINES
        + """
lines[2].sendall(b'go')
frame = hear()
step('test', json.dumps([frame, sum(1 for p in os.listdir('/proc') if p.isdigit()), [len(l.recv(1)) for l in lines]]))
"""
    )
    worker = """
if os.fork() == 0:
    os.setsid()
    time.sleep(1000)
line.recv(2)
os._exit(7)
"""
    frame, processes, ends = workshop.said(judge, worker, payload={"ranks": 3}, ranks=3)
    assert frame == {"type": "worker_exit", "rank": 2, "exit_code": 7, "signal": None}
    # Init, the judge and the rank checkers.
    assert processes == 5
    assert ends == [0, 0, 0]


def test_an_oom_kill_of_the_worker_is_counted_while_the_judge_lives(workshop: Workshop) -> None:
    """The kernel takes the worker first; the judge reports, and the outcome counts the kill."""
    judge = "request(); line().sendall(b'go'); step('test', hear()['signal'])"
    worker = "line.recv(2)\nx = []\nwhile True: x.append(bytearray(16 << 20))"
    report = workshop.pair(judge, worker)
    assert report.ok, report.message
    assert report.steps[0].stdout == "9"
    assert report.outcome.oom_kills is not None
    assert report.outcome.oom_kills >= 1
    assert not report.outcome.host_short


@pytest.mark.parametrize(
    ("judge", "ranks", "words"),
    [
        ("request(); sys.exit('reference.py: no such thing')", None, ("exit code 1", "no such thing")),
        ("raise RuntimeError('cannot import')", None, ("cannot import",)),
        # Other frames than progress, step and artifact.
        ("request(); say('end', ok=True, message=None)", None, ("found 'end'",)),
        ("request(); say('step', name='x')", None, ("lacks 'command'",)),
        ("request(); os.write(1, b'\\0\\0\\1\\0abc')", None, ("within a frame",)),
        # Init starts nothing for it.
        ("request()", 0, ("request for 0 ranks",)),
        ("request()", 65, ("request for 65 ranks",)),
    ],
    ids=["exit code", "before the request", "end", "half a step", "half a frame", "no rank", "too many ranks"],
)
def test_a_judge_that_fails_is_a_broken_harness(
    workshop: Workshop, judge: str, ranks: int | None, words: tuple[str, ...]
) -> None:
    """The message says what it did, with its last words."""
    report = workshop.pair(judge, ranks=ranks)
    assert report.ok is False
    assert all(word in (report.message or "") for word in words), report.message


@pytest.mark.parametrize(("ending", "how"), [("os._exit(0)", "exit code 0"), ("os.kill(os.getpid(), 9)", "signal 9")])
def test_whose_code_ended_the_judge_is_told_after_what_it_reported(workshop: Workshop, ending: str, how: str) -> None:
    """By a page that outlives the process, also where its code has closed every descriptor."""
    judge = f"""
import mmap
request()
page = mmap.mmap(int(os.environ['KR_AUTHOR_PAGE_FD']), 4096)
step('test', 'reported')
text = b'the reference\\nbenchmark 2 of 4' + bytes(1)
page[:len(text)] = text
os.closerange(0, 4096)
{ending}
"""
    report = workshop.pair(judge)
    assert [step.stdout for step in report.steps] == ["reported"]
    assert report.author_exit == AuthorExit(call="the reference", place="benchmark 2 of 4", how=how)
    assert (report.ok, report.message) == (False, str(report.author_exit))
    assert report.outcome.ending is Ending.COMPLETED
