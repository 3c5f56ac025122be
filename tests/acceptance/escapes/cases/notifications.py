"""
why: Who is told of reads makes them slower. The judge's reads of the control process would cost what a worker likes.
relax: seccomp
gvisor: wrong_answer
gvisor_why: it has notifications of its own, of files below /proc none
"""
refused("inotify_init", call, 253)
refused("inotify_init1", call, 294, 0)
for process in others():
    folder = os.open(f"/proc/{process}", os.O_RDONLY)
    refused(f"dnotify of process {process}", call, 72, folder, 1026, 1)
