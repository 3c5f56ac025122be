"""How a job ends: results, failures and events on their way to the database.

Owns the writing, the files that keep results while the database is away, and the notifications for others. Must not
decide what a job runs or when jobs are claimed.
"""
