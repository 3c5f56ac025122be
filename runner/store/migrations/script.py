"""Executes a file of `sql/` inside a revision; called by the scripts in `versions/` only."""

from importlib import resources

from alembic import op


def execute(name: str) -> None:
    """Run every statement of `sql/<name>` on the migration's connection.

    `no_parameters` hands the text to the driver as it is: several statements, and `%` means `%`.
    """
    text = resources.files("runner.store.migrations").joinpath("sql", name).read_text(encoding="utf-8")
    op.get_bind().execution_options(no_parameters=True).exec_driver_sql(text)
