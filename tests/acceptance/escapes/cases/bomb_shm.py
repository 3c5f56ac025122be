"""
why: /dev/shm is sized; filling it ends with an error of the writer's, and nothing else happens.
relax: shm
"""
block = bytes(1 << 20)
fd = os.open("/dev/shm/full", os.O_CREAT | os.O_WRONLY)
written = 0
try:
    while written < 200 << 20:
        written += os.write(fd, block)
except OSError as error:
    if error.errno != errno.ENOSPC:
        breach(f"writing failed otherwise: {error}")
os.unlink("/dev/shm/full")
if written >= 200 << 20:
    breach("200 MiB in a /dev/shm of 64")
