"""
why: There is no terminal whose input could be forged.
"""
import fcntl

refused("the controlling terminal", os.open, "/dev/tty", os.O_RDWR, also=(errno.ENXIO, errno.ENOENT, errno.EIO))
for fd in (0, 1, 2):
    refused(f"input forged on {fd}", fcntl.ioctl, fd, 0x5412, b"x", also=(errno.ENOTTY, errno.EINVAL, errno.EIO))
refused("the console", os.open, "/dev/console", os.O_RDWR, also=(errno.ENOENT, errno.EIO))
