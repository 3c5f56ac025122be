"""The daemon: claims jobs, runs each on a free slot, commits what was found. Called by `kernel-runner serve`.

The process:

    serve         one daemon after another from the configuration, the exit code
    signals       signals as calls in a thread of their own
    reload        what a new configuration changes at once, and what after the current runs
    instance      the identity of the state directory
    endpoint      health and metrics over HTTP; `health_report` is what they show, `depth` the length of the queue

One daemon:

    loop          `Daemon`: the claiming loop, and the way out
    startup       what comes before it, in order
    orders        what it is told from outside
    offers        what is free, what is asked for, which slot gets which job
    reservations  devices that come free together for a job that needs several
    readiness     what it is waiting for, to the log and to the service manager
    pulse         whether its main thread goes on, to the service manager's watchdog
    ports         the protocols of what it is given: an evaluator, an engine

Its threads:

    threads       started again whatever they die of, ended together
    slots         one per slot: evaluate, hand over what was found
    settler       commits it, for all slots together
    wakeups       notifications of the database
    announcer     events, wake-ups and progress for others; `events` is what they look like
    delivery      results that the spool kept through an outage
    lookout       whether the engine is there while nothing runs, whether the clock was set
    housekeeping  what the database keeps for a while only

Must not know what a container, a task or an SQL statement looks like.
"""

from runner.daemon.interfaces import Engine, JobEvaluator
from runner.daemon.loop import Daemon, ExitReason
from runner.daemon.serve import serve
from runner.daemon.shutdown import ShutdownControl

__all__ = ["Daemon", "Engine", "ExitReason", "JobEvaluator", "ShutdownControl", "serve"]
