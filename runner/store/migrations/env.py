"""Alembic's entry: runs the revisions on the connection and in the transaction that `runner.store.migrate` opened.

No logging is configured here and no alembic.ini is read: the process that migrates keeps its own.
"""

from alembic import context

from runner.store.migrations import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    on_version_apply=context.config.attributes["on_version_apply"],
    version_table=VERSION_TABLE["version_table"],
    version_table_schema=VERSION_TABLE["version_table_schema"],
)
context.run_migrations()
