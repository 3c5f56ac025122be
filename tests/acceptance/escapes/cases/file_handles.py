"""
why: Files are not opened by handle, past the mount they are in, and keep no hint of how long data will live.
relax: seccomp
"""
handle = ctypes.create_string_buffer(b"\x80\0\0\0", 256)
mount = ctypes.c_int()
refused("name_to_handle_at", call, 303, -100, b"/usr", handle, ctypes.byref(mount), 0)
for path in ("/work", "/tmp", "/usr/bin/env", "/dev/null"):
    hint = ctypes.c_uint64(4)
    refused(f"a hint of {path}", call, 72, os.open(path, os.O_RDONLY), 1036, ctypes.byref(hint), also=(errno.EINVAL,))
refused("open_by_handle_at", call, 304, os.open("/", os.O_RDONLY), handle, 0)
