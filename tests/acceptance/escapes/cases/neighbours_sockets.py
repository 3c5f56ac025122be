"""
why: Abstract sockets and the loopback device belong to the container alone.
relax: network
"""
import socket

refused(
    "an abstract socket of the host", socket.socket(socket.AF_UNIX).connect, "\0@BAIT@",
    also=(errno.ECONNREFUSED, errno.ENOENT),
)
refused("a loopback port of the host", socket.create_connection, ("127.0.0.1", int("@BAIT_PORT@")), 2, also=(errno.ECONNREFUSED,))
