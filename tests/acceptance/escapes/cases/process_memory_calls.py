"""
why: Memory of processes is not read or written by system call, one's own neither.
alone: without its defence it writes to the memory of the process that reports
relax: seccomp
"""
buffer = ctypes.create_string_buffer(8)
vector = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
for pid in (os.getpid(), *others()):
    refused(f"process_vm_readv of {pid}", call, 310, pid, vector, 1, vector, 1, 0)
    refused(f"process_vm_writev to {pid}", call, 311, pid, vector, 1, vector, 1, 0)
    refused(f"kcmp with {pid}", call, 312, pid, os.getpid(), 0, 0, 0)
