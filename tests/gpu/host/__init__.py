"""A GPU host from nothing: everything it needs in one file, and a plan of jobs from the queue to their results."""
