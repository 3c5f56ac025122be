"""
why: The evaluation environment, /usr and /etc are the same for everybody and cannot be written.
times: 2
"""
import site
import sys

places = [*site.getsitepackages(), os.path.dirname(os.__file__), os.path.dirname(sys.executable), sys.prefix, "/usr/lib"]
for place in places:
    for name in ("sitecustomize.py", "usercustomize.py", "planted.pth", "planted.so"):
        # Debian's Python names folders that are not there, and has links into /etc.
        refused(f"{place}/{name}", write, f"{place}/{name}", b"x", os.O_CREAT, also=(errno.EROFS, errno.ENOENT))
for path in ("/etc/ld.so.preload", "/etc/ld.so.cache", "/etc/passwd", "/kernel-runner/sandbox/inside/init.py", "/x"):
    refused(path, write, path, b"x", os.O_CREAT, also=(errno.EROFS,))
