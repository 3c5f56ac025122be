"""
why: Descriptors of other processes cannot be fetched.
verdict: accepted
relax: seccomp
relaxed: wrong_answer
"""
mine = call(434, os.getpid(), 0)
refused("a descriptor of one's own process", call, 438, mine, 0, 0)
for pid in others():
    refused(f"a descriptor of {pid}", call, 438, call(434, pid, 0), 0, 0)
