"""`data`: the submissions of competitions as files."""

from __future__ import annotations

import typer

from runner.cli import data_analysis
from runner.cli.app import app

data = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Exported submissions: rankings, plots, publishing."
)
app.add_typer(data, name="data")
data_analysis.add_commands(data)
