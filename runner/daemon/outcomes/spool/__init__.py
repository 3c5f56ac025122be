"""Results on disk: what was found while the database was away, kept through restarts until it can be committed.

    files    `Spool`: one file per result below one directory, bounded, durable, private
    format   what such a file holds; pure

Must not know the database, or decide when to deliver: that is `runner.daemon.outcomes.replay`, the only caller.
"""

from runner.daemon.outcomes.spool.files import ASIDE, Spool, Spooled
from runner.daemon.outcomes.spool.format import DROPPED

__all__ = ["ASIDE", "DROPPED", "Spool", "Spooled"]
