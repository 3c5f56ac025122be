"""
why: The paths and names a submission can read lead to nothing of the host's that is not bound for it.
"""
for path in (
    "/root", "/home", "/mnt", "/srv", "/boot", "/var/lib/docker", "/var/lib/kernel-runner", "/var/lib/postgresql",
    "/etc/shadow", "/etc/ssh", "/etc/kernel-runner", "/etc/docker", "/kernel-runner/tasks/problems/vectoradd", "/judge",
):
    try:
        found = os.listdir(path) if os.path.isdir(path) else read(path)
    except OSError:
        continue
    # The interpreter itself may be bound from there, and nothing beside it.
    own = {place.removeprefix(f"{path}/").split("/")[0] for place in (sys.prefix, sys.base_prefix)}
    if found and not (isinstance(found, list) and set(found) <= own):
        breach(f"{path} holds {found[:5]}")
NAMES = {"PATH", "LANG", "LC_CTYPE", "HOME", "TMPDIR", "USER", "LOGNAME", "SHELL", "PYTHONDONTWRITEBYTECODE"}
CACHES = {"TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH"}
COMPILERS = {"TORCHINDUCTOR_VEC_ISA_OK", "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"}
OURS = {"POPCORN_FD", "POPCORN_SEED", "KR_JUDGE_FD", "CUDA_MPS_PIPE_DIRECTORY", "PYTHONPATH", *CACHES, *COMPILERS}
for name in set(os.environ) - NAMES - OURS:
    breach(f"the environment has {name}")
for path in ("/proc/self/cmdline", "/proc/1/cmdline", "/proc/1/comm"):
    text = open(path, "rb").read().lower()
    if any(word in text for word in (b"password", b"secret", b"postgres", b"seed")):
        breach(f"{path} tells a secret")
