"""
why: No address outside, no metadata service, no name, over any protocol.
relax: network
"""
import socket

# Tunnels that the kernel puts into every namespace, down and without an address.
IDLE = {"lo", "tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6gre0"}
if set(os.listdir("/sys/class/net")) - IDLE:
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
