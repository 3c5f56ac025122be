"""
why: What lies unread in sockets and pipes is the container's memory.
alone: it takes memory that may end the container
"""
import array
import socket

kept = []
try:
    for _ in range(300):
        left, right = socket.socketpair()
        left.setblocking(False)
        try:
            while True:
                left.send(bytes(65536))
        except BlockingIOError:
            pass
        kept.append((left, right))
except OSError:
    pass
for left, right in kept:
    left.close()
    right.close()
