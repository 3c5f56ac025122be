"""
why: io_uring does its work past the system call list and is not to be had; nor is kernel AIO.
relax: seccomp
gvisor: wrong_answer
gvisor_why: it has kernel AIO and io_uring of its own
"""
refused("io_uring_setup", call, 425, 4, ctypes.create_string_buffer(120))
refused("io_uring_enter", call, 426, 0, 1, 0, 0, None, 0)
refused("io_uring_register", call, 427, 0, 0, None, 0)
context = ctypes.c_uint64()
refused("io_setup", call, 206, 4, ctypes.byref(context))
