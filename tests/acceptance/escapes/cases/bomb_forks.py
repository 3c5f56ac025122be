"""
why: The pids limit holds, everybody of the worker's uid is killed, and the judge has its threads already.
verdict: time_limit
timeout_s: 2
gvisor: [internal_error, time_limit]
gvisor_why: its own kernel needs processes of the host and ends at the limit; the job is retried and given up
"""
def custom_kernel(data):
    while True:
        try:
            os.fork()
        except OSError:
            pass
