"""
why: Device nodes cannot be made, and the container has only those every container has.
relax: devices
gvisor: wrong_answer
gvisor_why: nodes can be made, and lead to its own few devices; it brings /dev/fuse and /dev/net/tun
"""
import stat

USUAL = {"full", "null", "ptmx", "random", "tty", "urandom", "zero", "console"}
for name, device in {"mem": (1, 1), "kmsg": (1, 11), "disk": (254, 0), "fuse": (10, 229), "kvm": (10, 232)}.items():
    for kind in (stat.S_IFCHR, stat.S_IFBLK):
        refused(f"a node for {name}", os.mknod, f"/tmp/{name}", 0o666 | kind, os.makedev(*device))
for directory, _, names in os.walk("/dev"):
    for name in names:
        mode = os.lstat(f"{directory}/{name}").st_mode
        if stat.S_ISBLK(mode) or stat.S_ISCHR(mode) and name not in USUAL:
            breach(f"there is a device {directory}/{name}")
