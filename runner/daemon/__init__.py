"""The daemon: claims jobs, runs each on a free slot, commits what was found. Called by `kernel-runner serve`.

    serve      builds the parts from the configuration, turns signals into events, returns the exit code
    loop       `Daemon`: start-up, the claiming loop, the way out
    slots      one thread per slot: evaluate, then settle the job in the database
    progress   posts the progress of running jobs, at most once a second each, on its own connection
    readiness  says what the daemon is waiting for, to the log and to the service manager
    ports      the protocols of what the daemon is given: an evaluator, an engine

Must not know what a container, a task or an SQL statement looks like.
"""

from runner.daemon.loop import Daemon
from runner.daemon.ports import Engine, Evaluates
from runner.daemon.serve import serve

__all__ = ["Daemon", "Engine", "Evaluates", "serve"]
