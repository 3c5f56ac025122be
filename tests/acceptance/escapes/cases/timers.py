"""
why: Interrupts of timers that wake no thread take a core from control calls, and no process is charged for them.
relax: seccomp
gvisor: wrong_answer
gvisor_why: it has timers of its own, which are threads of its process
"""
timer = ctypes.c_void_p()
refused("timer_create", call, 222, 1, None, ctypes.byref(timer))
refused("timerfd_create", call, 283, 1, 0)
