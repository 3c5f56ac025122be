"""
why: The slot's cores are all there are.
relax: cpuset
"""
mine = os.sched_getaffinity(0)
for core in range(os.sysconf("SC_NPROCESSORS_CONF")):
    if core not in mine:
        refused(f"core {core}", os.sched_setaffinity, 0, {core}, also=(errno.EINVAL,))
everything = set(range(1024))
try:
    os.sched_setaffinity(0, everything)
except OSError:
    pass
if len(os.sched_getaffinity(0)) > int("@SLOT_CORES@"):
    breach(f"cores {os.sched_getaffinity(0)}")
