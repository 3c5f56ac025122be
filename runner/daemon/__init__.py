"""The daemon: claims jobs, runs each on a free slot, commits the results.

The process:

    serve           builds the daemon from the configuration; the exit code
    spec            everything it is built from
    signals         runs signal handlers in a thread of their own
    instance        the identity of the state directory
    shutdown        requests to stop

One daemon:

    loop            `Daemon`: starts its parts, claims again and again, ends
    startup         the steps before the first claim, in order
    claim_turn      one claim, and which slot gets which job
    capacity        which slots are free, and what to ask the queue for
    recovery        repairs after an outage: unconfirmed claims, expired leases
    slot            a slot's thread, which evaluates a job and submits the outcome
    leases          renews the leases of the jobs this host holds
    listener        turns database notifications into wake-ups
    housekeeping    has old records removed
    threads         starts threads again when they break, and ends them together
    interfaces      the protocols of the evaluator and the engine

    outcomes/       how a job ends: writer, spool, replay, publisher
    monitoring/     readiness, watchdog, health and metrics over HTTP

Must not know the details of containers, tasks or SQL.
"""

from runner.daemon.interfaces import Engine, JobEvaluator
from runner.daemon.loop import Daemon, ExitReason
from runner.daemon.serve import serve
from runner.daemon.shutdown import ShutdownControl

__all__ = ["Daemon", "Engine", "ExitReason", "JobEvaluator", "ShutdownControl", "serve"]
