"""
why: Threads count as processes; whoever takes them all gets no more and harms nobody else.
relax: pids
gvisor: [internal_error, wrong_answer]
gvisor_why: >-
  its threads are its own kernel's, without a limit; where too many run at once, that kernel ends at the limit on the
  host's, and the job is retried and given up
"""
import threading

stop = threading.Event()
threads = []
threading.stack_size(65536)
try:
    for _ in range(400):
        thread = threading.Thread(target=stop.wait, daemon=True)
        thread.start()
        threads.append(thread)
except RuntimeError:
    pass
stop.set()
if len(threads) == 400:
    breach("400 threads under a limit of 256")
