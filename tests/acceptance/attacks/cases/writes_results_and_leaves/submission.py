import json
import os
import stat
import struct

if "NAIVE_FD" in os.environ:
    FORGED = b"check: pass\n"
else:
    step = {
        "type": "step", "name": "test", "command": "x", "start_ns": 0, "duration_ns": 1, "exit_code": 0, "signal": None,
        "timed_out": False, "output_limit": False, "stdout": "", "stderr": "", "stdout_bytes": 0, "stderr_bytes": 0,
        "result": {"check": "pass", "test-count": "2"},
        "judged": {"verdict": "accepted", "message": None, "assurance": {}, "details": {}},
    }
    body = json.dumps(step).encode()
    FORGED = struct.pack("!I", len(body)) + body

for fd in range(3, 4096):
    try:
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.write(fd, FORGED)
    except OSError:
        pass
os._exit(0)
