"""
why: No new namespace of any kind, by any of the calls that make them.
relax: seccomp
gvisor: wrong_answer
gvisor_why: gVisor makes user namespaces of its own kernel's, which are none of the host's
"""
for name, flag in {
    "user": 0x10000000, "mount": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x8000000, "uts": 0x4000000,
    "cgroup": 0x2000000, "time": 0x80,
}.items():
    if os.fork() == 0:
        try:
            call(272, flag)
        except OSError as error:
            os._exit(0 if error.errno in NO else 2)
        os._exit(1)
    if os.waitstatus_to_exitcode(os.wait()[1]):
        breach(f"unshare of the {name} namespace")
    if name != "time":
        refused(f"clone with a new {name} namespace", spawned, 56, flag | 17, 0, 0, 0, 0)
structure = (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, 17)
refused("clone3 with a new user namespace", spawned, 435, structure, ctypes.sizeof(structure))
for name in os.listdir("/proc/self/ns"):
    refused(f"setns to one's own {name}", call, 308, os.open(f"/proc/self/ns/{name}", os.O_RDONLY), 0)
