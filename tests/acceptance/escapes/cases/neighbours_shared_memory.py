"""
why: /dev/shm and the System V objects of the host are another namespace's.
relax: ipc
"""
if os.path.exists("/dev/shm/@BAIT@"):
    breach("the host's /dev/shm is here")
try:
    call(29, int("@BAIT_KEY@", 16), 4096, 0)
    breach("the host's System V shared memory is here")
except OSError:
    pass
