"""
why: Nobody sets a clock that others measure with.
"""
now = struct.pack("qq", 1_700_000_000, 0)
refused("settimeofday", call, 164, now, None)
refused("clock_settime", call, 227, 0, now)
refused("adjtimex", call, 159, struct.pack("I", 1) + bytes(204))
refused("clock_adjtime", call, 305, 0, struct.pack("I", 1) + bytes(204))
import time
refused("time.clock_settime", time.clock_settime, time.CLOCK_REALTIME, 0.0)
