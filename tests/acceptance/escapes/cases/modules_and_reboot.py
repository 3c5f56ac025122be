"""
why: The kernel of the host is not loaded into, replaced, stopped or accounted.
"""
for what, arguments in {
    "init_module": (175, None, 0, b""), "finit_module": (313, 0, b"", 0), "delete_module": (176, b"x", 0),
    "kexec_load": (246, 0, 0, None, 0), "kexec_file_load": (320, 0, 0, 0, None, 0), "reboot": (169, 0xFEE1DEAD, 672274793, 0, None),
    "swapon": (167, b"/tmp/x", 0), "swapoff": (168, b"/tmp/x"), "acct": (163, b"/tmp/x"), "iopl": (172, 3), "ioperm": (173, 0, 1, 1),
    "sethostname": (170, b"x", 1), "setdomainname": (171, b"x", 1), "quotactl": (179, 0, None, 0, None), "vhangup": (153,),
}.items():
    refused(what, call, *arguments)
