"""
why: A tree deeper than any path may be long stays behind in /work; nobody walks it, and it goes with its mount.
alone: its tree stays behind
"""
top = os.getcwd()
os.mkdir(f"of-{os.getpid()}")
os.chdir(f"of-{os.getpid()}")
for _ in range(3000):
    os.mkdir("d" * 60)
    os.chdir("d" * 60)
open("bottom", "w").close()
os.chdir(top)
