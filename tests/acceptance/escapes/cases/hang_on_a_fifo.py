"""
why: A read that nobody will ever answer ends at the time limit, signals blocked or not.
verdict: time_limit
timeout_s: 2
"""
import signal


def custom_kernel(data):
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    os.mkfifo("/tmp/never")
    open("/tmp/never").read()
