"""Leaderboards: tasks are checked and published, rankings shown, finals and validations ordered, results replaced
or taken out (docs/cli.md).

For those who write tasks, publish them and run leaderboards; a host evaluates without this guest.
"""
