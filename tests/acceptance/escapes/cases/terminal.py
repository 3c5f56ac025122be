"""
why: There is no terminal whose input could be forged, nor can one be made, for which the kernel would work unseen.
"""
import fcntl

refused("the controlling terminal", os.open, "/dev/tty", os.O_RDWR, also=(errno.ENXIO, errno.ENOENT, errno.EIO))
for fd in (0, 1, 2):
    refused(f"input forged on {fd}", fcntl.ioctl, fd, 0x5412, b"x", also=(errno.ENOTTY, errno.EINVAL, errno.EIO))
refused("the console", os.open, "/dev/console", os.O_RDWR, also=(errno.ENOENT, errno.EIO))
for path in ("/dev/ptmx", "/dev/pts/ptmx"):
    refused(f"a terminal of its own by {path}", os.open, path, os.O_RDWR | os.O_NOCTTY, also=(errno.ENOENT,))
