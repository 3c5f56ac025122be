"""
why: No programs in the kernel and no counters of the host.
relax: seccomp
"""
attributes = ctypes.create_string_buffer(128)
attributes[0:8] = struct.pack("II", 1, 128)
attributes[40:48] = struct.pack("Q", 0x63)
refused("perf_event_open", call, 298, attributes, 0, -1, -1, 0)
refused("bpf", call, 321, 0, ctypes.create_string_buffer(128), 128)
refused("fanotify", call, 300, 0x200, 0)
