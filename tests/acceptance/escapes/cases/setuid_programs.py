"""
why: no_new_privs makes the set-uid programs of the bound /usr run as whoever starts them.
relax: new_privileges
"""
import subprocess
import time

for program in ("/usr/bin/su", "/usr/bin/passwd", "/usr/bin/chsh", "/usr/bin/newgrp"):
    if not os.path.exists(program):
        continue
    process = subprocess.Popen(
        [program], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    for _ in range(2000):
        try:
            ids = next(line for line in open(f"/proc/{process.pid}/status") if line.startswith("Uid:")).split()[1:]
        except (OSError, StopIteration):
            break
        if "0" in ids:
            breach(f"{program} runs as root")
            break
        if process.poll() is not None:
            break
    process.kill()
    process.wait()
