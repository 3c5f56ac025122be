"""Hosts a candidate, or the reference, in a worker. The candidate may rewrite all of this."""
