"""
why: What a job leaves in its home, /tmp and /dev/shm, start-up files of Python among it, is gone for the next one.
times: 2
relax: ipc
"""
import site

user = site.getusersitepackages()
places = (os.path.expanduser("~"), "/tmp", "/dev/shm", user, "/var/tmp", "/run", "/run/lock", "/dev/mqueue")
if not REHEARSAL:
    for place in places:
        if os.path.exists(f"{place}/left-by-a-job"):
            breach(f"{place}/left-by-a-job is there")
            os.unlink(f"{place}/left-by-a-job")
    if "planted" in sys.modules:
        breach("a start-up file of an earlier job ran")
    os.makedirs(user, exist_ok=True)
    write(f"{user}/planted.pth", b"import sys; sys.modules['planted'] = sys\n", os.O_CREAT)
    for place in places:
        try:
            if not BREACHES:
                write(f"{place}/left-by-a-job", b"x", os.O_CREAT)
        except OSError:
            pass
