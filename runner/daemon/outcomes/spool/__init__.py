"""Results on disk: found while the database was away, and kept through restarts until they can be committed.

    files    `Spool`: one file per result below one directory, bounded, durable, private
    format   the contents of such a file; pure

Must not know the database, or decide when to commit.
"""

from runner.daemon.outcomes.spool.files import ASIDE, Spool, Spooled
from runner.daemon.outcomes.spool.format import DROPPED

__all__ = ["ASIDE", "DROPPED", "Spool", "Spooled"]
