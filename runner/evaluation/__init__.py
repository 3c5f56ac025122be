"""From a claimed job to its result, without a database.

Owns what a job runs, in which container, what is built beforehand, and what follows from what came out. Must not know
the queue, leases or SQL: it is given a job and a slot, and answers with a `JobResult` or an error.
"""
