"""
why: Files are not opened by handle, past the mount they are in.
verdict: accepted
relax: seccomp
relaxed: wrong_answer
"""
handle = ctypes.create_string_buffer(b"\x80\0\0\0", 256)
mount = ctypes.c_int()
refused("name_to_handle_at", call, 303, -100, b"/usr", handle, ctypes.byref(mount), 0)
refused("open_by_handle_at", call, 304, os.open("/", os.O_RDONLY), handle, 0)
