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

Its threads, and when each has a connection to the database:

    main            claims when a slot becomes free, at a notification, or after `poll_s`; the answer also says whether
                    to drain, register again, reclaim. Checks the engine while no job runs. Always
    early-checks    refuses files of waiting jobs that cannot be evaluated. Never; it uses the main thread's
    listen          turns notifications into wake-ups of the main thread and the heartbeat. Always
    heartbeat       renews leases, receives cancel requests. While a lease is held
    one per slot    evaluates, submits the outcome. Never
    commit          commits all waiting results in one transaction (commit-late: when a commit hangs; commit-endings:
                    attempts that ended without a result). While outcomes come
    replay, publish, housekeeping   commits spooled results; notifies; has old records removed once an hour. While
                    there is something
    http, queue-depth, signals      serve health and metrics; count the queue (a connection while it asks); hear signals
    watchdog        pings systemd's watchdog while the main thread makes progress. Never

Must not know the details of containers, tasks or SQL.
"""

from runner.daemon.interfaces import Engine, JobEvaluator
from runner.daemon.loop import Daemon, ExitReason
from runner.daemon.serve import serve
from runner.daemon.shutdown import ShutdownControl

__all__ = ["Daemon", "Engine", "ExitReason", "JobEvaluator", "ShutdownControl", "serve"]
