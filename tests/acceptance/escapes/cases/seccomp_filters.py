"""
why: A process that traps its own system calls could answer in the kernel's place.
relax: seccomp
gvisor: wrong_answer
gvisor_why: gVisor lets a process filter itself
"""
refused("strict mode by seccomp", call, 317, 1, 1, None, also=(errno.EINVAL,))
program = struct.pack("HBBI", 6, 0, 0, 0x7FFF0000)
filled = ctypes.create_string_buffer(program)
description = struct.pack("HxxxxxxQ", 1, ctypes.addressof(filled))
refused("a filter by seccomp", call, 317, 1, 0, description)
refused("a filter by prctl", prctl, 22, 2, ctypes.create_string_buffer(description), 0, 0)
for bits in (1 << 32, 1 << 63, -1 << 32):
    refused("a filter by prctl, with bits that the kernel does not look at", prctl, bits | 22, 2, ctypes.create_string_buffer(description), 0, 0)
