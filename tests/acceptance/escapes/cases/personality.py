"""
why: The address space stays random and the process a 64-bit one.
relax: seccomp
gvisor: wrong_answer
gvisor_why: gVisor takes the flags and ignores them
"""
refused("no randomisation", call, 135, 0x0040000)
refused("a 32-bit personality", call, 135, 0x0008)
refused("modify_ldt", call, 154, 1, struct.pack("IIII", 0, 0, 0xFFFFF, 0x51), 16)
