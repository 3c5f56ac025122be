"""
why: System V objects die with the container's IPC namespace; POSIX queues are not to be had.
times: 2
relax: ipc
gvisor: wrong_answer
gvisor_why: it has message queues of its own, gone with the container
"""
# Of this run alone: without their namespace the objects are the host's.
KEY = int("@BAIT@"[-8:], 16)
for make, remove, size in ((29, 31, 4096), (64, 66, 1)):
    if REHEARSAL:
        break
    try:
        identity = call(make, KEY, size, 0)
    except OSError:
        call(make, KEY, size, 0o1666)
        continue
    breach("an object of an earlier job was there")
    call(remove, identity, 0, 0)
refused("a message queue", call, 68, KEY, 0o1666)
refused("a POSIX queue", call, 240, b"kernel-runner", 0o102, 0o666, 0)
