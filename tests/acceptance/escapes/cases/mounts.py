"""
why: Nothing is mounted, moved, unmounted or pivoted, by the old calls or the new ones.
"""
os.makedirs("/tmp/there", exist_ok=True)
refused("mount of a tmpfs", call, 165, b"none", b"/tmp/there", b"tmpfs", 0, None)
refused("bind mount", call, 165, b"/usr", b"/tmp/there", None, 4096, None)
refused("remount of / for writing", call, 165, b"none", b"/", None, 32 | 4096, None)
refused("unmount of /usr", call, 166, b"/usr", 2)
refused("pivot_root", call, 155, b"/tmp", b"/tmp/there")
refused("chroot", os.chroot, "/tmp")
refused("fsopen", call, 430, b"tmpfs", 0)
refused("open_tree", call, 428, -100, b"/usr", 1)
refused("move_mount", call, 429, -100, b"/usr", -100, b"/tmp/there", 0)
refused("mount_setattr", call, 442, -100, b"/", 0, ctypes.create_string_buffer(32), 32)
