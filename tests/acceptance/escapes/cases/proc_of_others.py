"""
why: The /proc entries of judge and init are closed to another uid.
boards: [judge]
relax: one_uid
gvisor: wrong_answer
gvisor_why: gVisor shows the environment of other uids; none holds a secret
"""
for pid in others():
    for name in ("environ", "mem", "maps", "smaps", "auxv", "pagemap", "syscall", "stack", "io", "personality", "map_files"):
        refused(f"/proc/{pid}/{name}", read, f"/proc/{pid}/{name}", also=(errno.ENOENT,))
    for name in ("fd", "fdinfo", "map_files", "task"):
        if name != "task":
            refused(f"/proc/{pid}/{name}", os.listdir, f"/proc/{pid}/{name}", also=(errno.ENOENT,))
    for name in ("root", "cwd", "exe", "ns/net"):
        refused(f"/proc/{pid}/{name}", os.readlink, f"/proc/{pid}/{name}", also=(errno.ENOENT,))
