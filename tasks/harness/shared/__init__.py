"""What judge and worker have in common: messages, shared memory, values, flags. Must import neither of the two."""
