"""Tests of the commands for leaderboards and tasks."""
