"""
why: A file larger than the limit is refused although the file system would hold its hole.
relax: ulimits
"""
import signal

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
fd = os.open("/tmp/sparse", os.O_CREAT | os.O_WRONLY)
refused("a sparse file of 2 GiB", os.ftruncate, fd, 2 << 30, also=(errno.EFBIG,))
os.unlink("/tmp/sparse")
