"""
why: The kernel's log belongs to the host.
gvisor: wrong_answer
gvisor_why: the log is its own
"""
refused("/dev/kmsg", read, "/dev/kmsg", also=(errno.ENOENT,))
refused("/dev/kmsg written", write, "/dev/kmsg", b"x", also=(errno.ENOENT, errno.EROFS))
refused("/proc/kmsg", read, "/proc/kmsg", also=(errno.ENOENT, errno.EIO))
refused("syslog", call, 103, 3, ctypes.create_string_buffer(64), 64)
refused("syslog size", call, 103, 10, 0, 0)
