"""What judge and worker have in common: messages, shared memory, values, flags. Imports neither of the two."""
