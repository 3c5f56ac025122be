"""
why: No address outside, no metadata service, no name, over any protocol.
verdict: accepted
relax: network
relaxed: wrong_answer
"""
import socket

if sorted(name for name in os.listdir("/sys/class/net") if open(f"/sys/class/net/{name}/flags").read().strip() not in ("0x8", "0x80", "0x90", "0x88", "0x1002", "0x1003")) not in ([], ["lo"]):
    breach(f"interfaces {os.listdir('/sys/class/net')}")
AWAY = (errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EHOSTUNREACH)
for address in ("169.254.169.254", "198.51.100.1", "8.8.8.8", "10.0.0.1", "172.17.0.1"):
    refused(f"TCP to {address}", socket.create_connection, (address, 80), 2, also=AWAY)
    datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    refused(f"UDP to {address}", datagram.sendto, b"x", (address, 53), also=AWAY)
six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
refused("UDP to the IPv6 metadata address", six.sendto, b"x", ("fd00:ec2::254", 80), also=AWAY)
try:
    breach(f"a name: {socket.getaddrinfo('metadata.google.internal', 80)}")
except OSError:
    pass
