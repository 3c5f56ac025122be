"""
why: Priority, real time, affinity and limits of the harness, and better ones of one's own, are refused.
boards: [judge]
relax: one_uid
"""
import resource

refused("a better nice value", os.setpriority, os.PRIO_PROCESS, 0, -5)
refused("real time", os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))
refused("a deadline", call, 314, 0, struct.pack("IIQiIQQQ", 48, 6, 0, 0, 0, 10**6, 10**7, 10**7), 0)
refused("real time for the disk", call, 251, 1, 0, (1 << 13) | 0)
refused("a core for itself", prctl, 62, 1, 0, 0, 0)
for pid in others():
    refused(f"nice value of {pid}", os.setpriority, os.PRIO_PROCESS, pid, 19)
    refused(f"scheduler of {pid}", os.sched_setscheduler, pid, os.SCHED_IDLE, os.sched_param(0))
    refused(f"affinity of {pid}", os.sched_setaffinity, pid, os.sched_getaffinity(0))
    refused(f"limits of {pid}", resource.prlimit, pid, resource.RLIMIT_NICE, (0, 0))
