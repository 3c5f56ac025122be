"""
why: Descriptors of other processes cannot be fetched.
relax: seccomp
"""
def fetched(pid):
    return call(438, call(434, pid, 0), 0, 0)


for pid in (os.getpid(), *others()):
    refused(f"a descriptor of {pid}", fetched, pid)
