"""
why: A subreaper keeps its orphans from init's eyes, not from its kill.
alone: its processes stay behind
"""
child = os.fork()
if child == 0:
    libc.prctl(36, 1)
    for _ in range(20):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                while True:
                    os.urandom(64)
            os._exit(0)
    while True:
        os.urandom(64)
