"""
why: Unreaped children, and hundreds of orphans that init must reap, change no verdict.
alone: its processes stay behind
gvisor: [accepted, internal_error, time_limit]
gvisor_why: >-
  its own kernel needs processes of the host for them, and is slow; where too many are there at once it ends at the
  limit, and the job is retried and given up
"""
for _ in range(400):
    try:
        child = os.fork()
    except OSError:
        os.waitpid(-1, 0)
        continue
    if child == 0:
        # The grandchild becomes init's, at once dead.
        try:
            os.fork()
        finally:
            os._exit(0)
    if child % 4:
        os.waitpid(child, 0)
