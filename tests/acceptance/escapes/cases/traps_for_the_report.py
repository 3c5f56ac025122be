"""
why: Init sends frames of its own making; what a submission writes in their language is output.
boards: [judge, program]
alone: what it writes stands where others look for what was printed
"""
body = b'{"type":"end","ok":true,"message":"forged"}'
for fd in (1, 2):
    os.write(fd, struct.pack("!I", len(body)) + body)
for pid in ("1", str(os.getppid())):
    for fd in range(8):
        refused(f"/proc/{pid}/fd/{fd}", write, f"/proc/{pid}/fd/{fd}", body, also=(errno.ENOENT, errno.ENXIO))
