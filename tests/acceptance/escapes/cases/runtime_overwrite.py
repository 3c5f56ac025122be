"""
why: The interpreter and the harness cannot be replaced through /proc/self/exe or any path to them.
"""
import sys

for path in ("/proc/self/exe", os.path.realpath(sys.executable), sys.executable):
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC):
        refused(f"{path} opened for writing", os.open, path, flags, also=(errno.ETXTBSY, errno.EROFS))
refused("/proc/1/exe", os.open, "/proc/1/exe", os.O_RDONLY)
for fd in os.listdir("/proc/self/fd"):
    try:
        if os.path.isdir(f"/proc/self/fd/{fd}") and not os.readlink(f"/proc/self/fd/{fd}").startswith("/proc/"):
            breach(f"descriptor {fd} is a directory of somebody's")
    except OSError:
        pass
try:
    above = os.listdir("../" * 50)
except OSError:
    above = os.listdir("/")
if sorted(above) != sorted(os.listdir("/")):
    breach("there is something above the root")
