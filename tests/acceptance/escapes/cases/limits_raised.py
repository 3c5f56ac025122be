"""
why: A hard limit is only ever lowered, and the one on core dumps not at all. At 0 the kernel would start the host's
  crash handler for every process that dies.
relax: ulimits
gvisor: wrong_answer
gvisor_why: gVisor writes no core dumps and lets the limit be lowered
"""
import resource

def set_limit(limit, *limits):
    try:
        resource.setrlimit(limit, limits)
    except ValueError as error:
        raise OSError(errno.EPERM, str(error)) from error


for name in ("NOFILE", "FSIZE", "CORE"):
    limit = getattr(resource, f"RLIMIT_{name}")
    _, hard = resource.getrlimit(limit)
    if hard == resource.RLIM_INFINITY:
        breach(f"no hard limit of {name}")
        continue
    refused(f"a higher limit of {name}", set_limit, limit, hard + 1, hard + 1)

if resource.getrlimit(resource.RLIMIT_CORE) != (1, 1):
    breach(f"core dumps are limited to {resource.getrlimit(resource.RLIMIT_CORE)}")
refused("another limit of core dumps", set_limit, resource.RLIMIT_CORE, 0, 0)
refused("the same by prlimit64", call, 302, 0, 4, struct.pack("QQ", 0, 0), None)
for bits in (1 << 32, 1 << 63, -1 << 32):
    # The filter compares 64 bits of a number, and the kernel takes 32.
    refused("the same by setrlimit", call, 160, bits | 4, struct.pack("QQ", 0, 0))
    refused("the same by prlimit64", call, 302, 0, bits | 4, struct.pack("QQ", 0, 0), None)
