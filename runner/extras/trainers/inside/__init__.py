"""What runs inside containers beside the harness: the judge's side of a group, the worker's, and what both share."""
