"""The database's versions, as an alembic environment in package data; run by `runner.store.migrate` only.

Forward-only. A revision in `versions/` executes SQL files of `sql/`; a released file is never edited, a change is a new
revision. Everything runs in one transaction that the caller opened.
"""
