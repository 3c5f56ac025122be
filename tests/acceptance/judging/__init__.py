"""Submissions before the judge itself, without a container: an honest corpus, and one of attacks."""
