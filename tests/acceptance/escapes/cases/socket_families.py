"""
why: Raw and packet sockets are refused, and all families, protocols, options and flags that no submission needs.
relax: seccomp
gvisor: wrong_answer
gvisor_why: ICMP sockets in a network stack of its own, which leads nowhere
"""
import itertools
import socket

UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
STREAM, DGRAM, RAW, SEQPACKET = 1, 2, 3, 5
#: Beyond the last family; every type that four bits hold; TCP, UDP and what others stand for.
FAMILIES, TYPES, PROTOCOLS = range(48), range(16), (0, 1, 6, 17, 33, 58, 115, 132, 136, 255, 262)
#: Close on exec, not blocking, and bits that the kernel does not look at.
FLAGS = (0, 0o2000000, 0o4000, 1 << 32)
ALLOWED = {(NETLINK, RAW, 0), (NETLINK, DGRAM, 0)}
# Beside a judge of one rank the loopback is closed: packets cost time in interrupts, which no process is charged for.
if not os.path.ismount("/judge"):
    ALLOWED |= {(family, *both) for family in (INET, INET6) for both in ((STREAM, 0), (STREAM, 6), (DGRAM, 0), (DGRAM, 17))}
PAIRS = {(UNIX, kind, 0) for kind in (STREAM, DGRAM, SEQPACKET)}


def made(family, kind, protocol):
    """A socket."""
    os.close(call(41, family, kind, protocol))


def made_pair(family, kind, protocol):
    """Two that are connected."""
    two = ctypes.create_string_buffer(8)
    call(53, family, kind, protocol, two)
    for each in struct.unpack("ii", two):
        os.close(each)


def answered_otherwise(deed, allowed):
    """Sockets that are made though they are not allowed, refused though they are, or left to the kernel to refuse."""
    for family, kind, protocol, flags in itertools.product(FAMILIES, TYPES, PROTOCOLS, FLAGS):
        try:
            deed(family, kind | flags, protocol)
            error = 0
        except OSError as found:
            error = found.errno
        if (family, kind, protocol) in allowed:
            expected = (0,)
        elif (family, kind, 0) in PAIRS:
            # The protocol of a Unix socket loads nothing.
            expected = (0, errno.EPROTONOSUPPORT)
        else:
            expected = (errno.EPERM,)
        if error not in expected:
            yield family, kind | flags, protocol, errno.errorcode.get(error, "made")


for name, deed, allowed in (("socket", made, ALLOWED | PAIRS), ("socketpair", made_pair, PAIRS)):
    for first in itertools.islice(answered_otherwise(deed, allowed), 3):
        breach(f"{name}{first}")
for family in (UNIX, INET, INET6, NETLINK):
    refused("a family with bits that the kernel does not look at", made, 1 << 32 | family, DGRAM, 0)
    if family != UNIX:
        refused("a protocol with such bits", made, family, RAW, 1 << 32)

# The kernel runs a filter in the process that sends. That may be the judge.
ATTACHED = (socket.SOL_SOCKET, (26, 50, 51, 52)), (socket.IPPROTO_TCP, (31,))
program = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 1 << 16))
described = struct.pack("HxxxxxxQ", 1, ctypes.addressof(program))
one, other = socket.socketpair()
for level, options in ATTACHED:
    for option, bits in itertools.product(options, (0, 1 << 32)):
        refused(f"option {option} of level {level}", call, 54, one.fileno(), level, option | bits, described, len(described))
        refused("a level with such bits", call, 54, one.fileno(), level | 1 << 32, option, described, len(described))
text = ctypes.create_string_buffer(b"x")
parts = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(text), 1))
message = ctypes.create_string_buffer(struct.pack("QQQQQQQQ", 0, 0, ctypes.addressof(parts), 1, 0, 0, 0, 0))
for bits in (0, 1 << 32):
    out_of_band = socket.MSG_OOB | bits
    refused("sendto out of band", call, 44, one.fileno(), text, 1, out_of_band, 0, 0)
    refused("sendmsg out of band", call, 46, one.fileno(), message, out_of_band)
    refused("sendmmsg out of band", call, 307, one.fileno(), message, 1, out_of_band)
# What is not out of band arrives.
one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
one.sendall(b"x")
one.sendmsg([b"y"], [], socket.MSG_NOSIGNAL)
if other.recv(2) != b"xy":
    breach("another text than was sent")
