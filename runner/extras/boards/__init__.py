"""Leaderboards: tasks are checked and published; rankings, finals, validations; results made again or taken out.

For those who write tasks, publish them and run leaderboards (docs/cli.md); a host evaluates without this guest.
"""
