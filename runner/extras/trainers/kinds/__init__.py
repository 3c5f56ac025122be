"""Kinds of jobs that trainers send."""
