"""
why: A process in a session of its own that its parent has left is dead before the slot is used again.
alone: its process stays behind
"""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        import signal

        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
        libc.prctl(4, 0)
        while True:
            os.urandom(64)
    os._exit(0)
os.wait()
