"""Leaderboards: tasks checked and published, rankings, finals, validations, results made again or taken out (docs/cli.md).

For those who write tasks, publish them and run leaderboards; a host evaluates without this guest.
"""
