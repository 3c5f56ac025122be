"""
why: Each watcher of a file makes reads of it slower. A worker could slow the judge's reads of the control process.
relax: seccomp
gvisor: wrong_answer
gvisor_why: it has notifications of its own, of files below /proc none
"""
refused("inotify_init", call, 253)
refused("inotify_init1", call, 294, 0)
# Init outlives all that runs beside this.
refused("dnotify of process 1", call, 72, os.open("/proc/1", os.O_RDONLY), 1026, 1)
