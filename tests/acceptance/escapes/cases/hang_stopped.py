"""
why: Who stops itself is not waited for longer than anybody else.
verdict: time_limit
timeout_s: 2
"""
import signal


def custom_kernel(data):
    os.kill(os.getpid(), signal.SIGSTOP)
