"""
why: No uid, group or capability can be gained, and a set-uid bit set by the worker means nothing.
"""
for what, deed in {
    "uid 0": lambda: os.setuid(0), "judge's uid": lambda: os.setresuid(*3 * [os.getuid() - 1]), "gid 0": lambda: os.setgid(0),
    "groups": lambda: os.setgroups([0]), "a file given away": lambda: os.chown("/tmp/given", 0, 0),
}.items():
    open("/tmp/given", "w").close()
    refused(what, deed)
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
refused("capabilities", call, 126, header, (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6))
refused("an ambient capability", prctl, 47, 2, 7, 0, 0, also=(errno.EINVAL,))
refused("securebits", prctl, 28, 1, 0, 0, 0, also=(errno.EINVAL,))
