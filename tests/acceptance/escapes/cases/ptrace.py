"""
why: No process traces another one, not even its own child.
alone: without its defence it stops the process that reports
relax: seccomp
"""
refused("ptrace TRACEME", call, 101, 0, 0, 0, 0)
for pid in others():
    refused(f"ptrace ATTACH to {pid}", call, 101, 16, pid, 0, 0)
    refused(f"ptrace SEIZE of {pid}", call, 101, 0x4206, pid, 0, 0)
