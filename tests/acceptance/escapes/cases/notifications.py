"""
why: Who is told of reads makes them slower. The judge's reads of the control process would cost what a worker likes.
relax: seccomp
gvisor: wrong_answer
gvisor_why: it has notifications of its own, of files below /proc none
"""
refused("inotify_init", call, 253)
refused("inotify_init1", call, 294, 0)
# Init outlives all that runs beside this.
refused("dnotify of process 1", call, 72, os.open("/proc/1", os.O_RDONLY), 1026, 1)
