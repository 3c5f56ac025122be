"""
why: The pids limit holds, everybody of the worker's uid is killed, and the judge has its threads already.
boards: [judge, program]
verdict: {judge: time_limit, program: time_limit}
timeout_s: 2
"""
def custom_kernel(data):
    while True:
        try:
            os.fork()
        except OSError:
            pass
