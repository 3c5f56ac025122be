"""Shared by judge and worker: messages, shared memory, values, flags. Must import neither of the two."""
