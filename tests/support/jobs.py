"""Claimed jobs of which a test knows the type."""

from __future__ import annotations

from runner.base.model import Job, SubmissionJob


def of_submission(job: Job) -> SubmissionJob:
    """A job that is no group."""
    assert isinstance(job, SubmissionJob)
    return job
