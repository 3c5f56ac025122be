"""
why: What tells about the host's memory and keys is masked.
relax: masks
"""
for path in ("/proc/kcore", "/proc/kpageflags", "/proc/kpagecount", "/dev/mem", "/dev/port", "/dev/kmem"):
    refused(path, read, path, also=(errno.ENOENT,))
for path in ("/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats"):
    try:
        if read(path):
            breach(f"{path} can be read")
    except OSError:
        pass
for path in ("/proc/acpi", "/sys/firmware"):
    try:
        if os.listdir(path):
            breach(f"{path} can be listed")
    except OSError:
        pass
