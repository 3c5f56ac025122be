"""
why: What can be written lies in sized memory file systems; the disk of the host grows by nothing.
relax: tmpfs
"""
block = bytes(1 << 20)
fd = os.open("/tmp/full", os.O_CREAT | os.O_WRONLY)
written = 0
try:
    while written < 300 << 20:
        written += os.write(fd, block)
except OSError as error:
    if error.errno != errno.ENOSPC:
        breach(f"writing failed otherwise: {error}")
os.unlink("/tmp/full")
if written >= 300 << 20:
    breach("300 MiB in a /tmp of 256")
