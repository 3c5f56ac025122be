"""
why: Whatever is not the worker's answer on the line to the judge is tampering, and said so.
boards: [judge]
verdict: rejected
error: harness's own channel
"""
for fd in range(3, 4096):
    try:
        os.write(fd, b"\0\xff" * 4096)
    except OSError:
        pass
