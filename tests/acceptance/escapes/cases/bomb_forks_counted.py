"""
why: A fork beyond the pids limit is refused, and the processes that were made die with the call.
relax: pids
gvisor: internal_error
gvisor_why: its own kernel needs processes of the host and ends at the limit; the job is retried and given up
"""
import time

children = []
try:
    for _ in range(400):
        child = os.fork()
        if child == 0:
            time.sleep(1000)
        children.append(child)
except BlockingIOError:
    pass
if len(children) == 400:
    breach("400 processes under a limit of 256")
for child in children:
    os.kill(child, 9)
    os.waitpid(child, 0)
