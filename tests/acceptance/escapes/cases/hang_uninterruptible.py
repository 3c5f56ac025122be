"""
why: The parent of a vfork waits in the kernel without hearing signals; SIGKILL to all of the uid reaches the child.
boards: [judge, program]
verdict: time_limit
timeout_s: 2
"""
import threading
import time


def custom_kernel(data):
    libc.vfork()
    time.sleep(10000)
