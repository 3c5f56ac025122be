"""
why: Page faults handled by the submission would let it stop the kernel in the middle of a copy.
relax: seccomp
"""
refused("userfaultfd", call, 323, 1)
refused("memfd_secret", call, 447, 0, also=(errno.EOPNOTSUPP,))
refused("vmsplice", call, 278, os.pipe()[1], (ctypes.c_size_t * 2)(0, 0), 1, 0)
refused("remapping pages of others", call, 256, 1, 1, None, None)
