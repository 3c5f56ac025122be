"""
why: Keys are not namespaced by container, and what one job leaves there another one of the uid would find.
relax: seccomp
"""
refused("add_key", call, 248, b"user", b"kernel-runner", b"x", 1, -3)
refused("request_key", call, 249, b"user", b"kernel-runner", None, -3)
refused("keyctl", call, 250, 0, -4, 1)
