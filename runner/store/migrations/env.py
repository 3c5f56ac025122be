"""Alembic's entry: runs the revisions on the connection and in the transaction that `runner.store.migrate` opened.

No logging is configured here and no alembic.ini is read: the process that migrates keeps its own.
"""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table="migration",
    version_table_schema="runner",
    on_version_apply=context.config.attributes["on_version_apply"],
)
context.run_migrations()
