"""
why: Nobody's memory can be written through /proc, not even as a mapping of the interpreter.
boards: [judge]
relax: one_uid
"""
for pid in others():
    refused(f"/proc/{pid}/mem", write, f"/proc/{pid}/mem", b"x")
    refused(f"/proc/{pid}/oom_score_adj", write, f"/proc/{pid}/oom_score_adj", b"1000")
    refused(f"/proc/{pid}/clear_refs", write, f"/proc/{pid}/clear_refs", b"1", also=(errno.ENOENT,))
    refused(f"/proc/{pid}/coredump_filter", write, f"/proc/{pid}/coredump_filter", b"1", also=(errno.ENOENT,))
