"""
why: Neither init nor judge can be signalled from the worker's uid, with any signal, by pid or by descriptor.
boards: [judge]
alone: without its defence it ends the container
relax: one_uid
relaxed: internal_error
"""
import signal

for _ in range(50):
    for pid in others():
        for number in (*range(0, 32), 34, 64):
            refused(f"signal {number} to {pid}", os.kill, pid, number)


def signalled(pid):
    return call(424, call(434, pid, 0), signal.SIGKILL, None, 0)


for pid in others():
    refused(f"pidfd signal to {pid}", signalled, pid)
    refused(f"queued signal to {pid}", call, 129, pid, signal.SIGKILL, ctypes.create_string_buffer(128))
