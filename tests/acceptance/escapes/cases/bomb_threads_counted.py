"""
why: Threads count as processes; whoever takes them all gets no more and harms nobody else.
verdict: accepted
relax: pids
relaxed: wrong_answer
gvisor: internal_error
gvisor_why: its own kernel needs processes of the host and ends at the limit; the job is retried and given up
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
