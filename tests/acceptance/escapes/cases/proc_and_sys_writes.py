"""
why: What rules the whole host through /proc and /sys cannot be written.
"""
import glob

for path in (
    "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname",
    "/proc/sys/vm/drop_caches", "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/fs/binfmt_misc/register", "/proc/sys/net/ipv4/ip_forward", "/proc/1/oom_score_adj", "/proc/mtrr",
    "/sys/kernel/uevent_helper", "/sys/power/state", "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "/sys/kernel/mm/ksm/run", "/sys/bus/pci/rescan",
    *glob.glob("/sys/fs/cgroup/**/release_agent", recursive=True),
    *glob.glob("/sys/fs/cgroup/**/cgroup.procs", recursive=True),
    *glob.glob("/sys/fs/cgroup/**/*limit_in_bytes", recursive=True),
):
    refused(path, write, path, b"1", also=(errno.ENOENT, errno.EROFS, errno.EINVAL))
