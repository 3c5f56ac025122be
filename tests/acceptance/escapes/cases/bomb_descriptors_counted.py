"""
why: The limit on descriptors cannot be passed.
relax: ulimits
"""
opened = []
try:
    while len(opened) < 4500:
        opened.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
for fd in opened:
    os.close(fd)
if len(opened) >= 4500:
    breach("4500 descriptors under a limit of 4096")
