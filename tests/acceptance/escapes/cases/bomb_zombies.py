"""
why: Children nobody waits for, and orphans that the steward must collect by the hundred, cost nobody a verdict.
boards: [program, judge]
verdict: accepted
"""
for _ in range(400):
    try:
        child = os.fork()
    except OSError:
        os.waitpid(-1, 0)
        continue
    if child == 0:
        # The grandchild becomes the steward's, at once dead.
        try:
            os.fork()
        finally:
            os._exit(0)
    if child % 4:
        os.waitpid(child, 0)
