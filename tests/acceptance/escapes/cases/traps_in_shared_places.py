"""
why: Judge and init open nothing below /tmp, /work or /dev/shm by a name that the worker could have prepared.
boards: [judge, program]
alone: its traps stay behind
"""
for directory in ("/tmp", "/work", "/dev/shm"):
    for index, name in enumerate((
        "reference.py", "task.py", "utils.py", "eval.py", "cases.txt", "torch.py", "numpy.py", "json.py", "re.py", "os.py",
        "torchinductor_judge", "tmp", "judge", "__pycache__", "core",
    )):
        path = f"{directory}/{name}"
        if os.path.lexists(path):
            continue
        if directory == "/work" and name.endswith(".py"):
            # A program of a third party imports from here; the next step's own files replace nothing.
            continue
        (os.mkfifo(path) if index % 3 == 0 else os.symlink("/dev/zero" if index % 3 == 1 else "/proc/1/mem", path))
