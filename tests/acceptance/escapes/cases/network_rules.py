"""
why: The container's own network cannot be set up either.
gvisor: wrong_answer
gvisor_why: a tunnel and a bound device in a network stack of its own, which leads nowhere
"""
import fcntl
import socket
import struct

sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
request = struct.pack("16sH14s", b"lo", 1, b"")
refused("lo taken down", fcntl.ioctl, sock, 0x8914, struct.pack("16sH14s", b"lo", 0, b""), also=(errno.ENOTTY,))
refused("a bridge", fcntl.ioctl, sock, 0x89A0, b"br0" + b"\0" * 13, also=(errno.ENOPKG, errno.ENOTTY, errno.EINVAL))
refused("a tunnel", os.open, "/dev/net/tun", os.O_RDWR, also=(errno.ENOENT,))
refused("the packet filter", sock.getsockopt, 0, 64, 84, also=(errno.ENOPROTOOPT,))
refused("a device bound", sock.setsockopt, socket.SOL_SOCKET, 36, 1)
