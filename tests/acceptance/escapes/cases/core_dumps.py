"""
why: A process that dies leaves no core file anywhere.
relax: ulimits
"""
import signal

os.chdir("/tmp")
child = os.fork()
if child == 0:
    os.kill(os.getpid(), signal.SIGABRT)
_, status = os.waitpid(child, 0)
if os.WCOREDUMP(status) or any(name.startswith("core") for name in os.listdir("/tmp")):
    breach("a core was dumped")
os.chdir("/work")
