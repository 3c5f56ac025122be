"""
why: Raw and packet sockets, and every family and protocol that is kernel surface nobody needs, are refused.
verdict: accepted
relax: seccomp
relaxed: wrong_answer
gvisor: wrong_answer
gvisor_why: ICMP sockets in a network stack of its own, which leads nowhere
"""
import socket

GONE = (errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT)
for what, arguments in {
    "raw": (2, 3, 1), "raw IPv6": (10, 3, 58), "raw IP": (2, 3, 255), "packet": (17, 3, 3), "cooked packet": (17, 2, 3),
}.items():
    refused(what, socket.socket, *arguments, also=GONE)
for what, arguments in {
    "AF_ALG": (38, 5, 0), "AF_VSOCK": (40, 1, 0), "AF_RDS": (21, 5, 0), "AF_KCM": (41, 2, 0), "AF_XDP": (44, 3, 0),
    "AF_TIPC": (30, 5, 0), "AF_CAN": (29, 3, 1), "AF_BLUETOOTH": (31, 3, 1), "AF_KEY": (15, 3, 2), "AF_SMC": (43, 1, 0),
    "SCTP": (2, 1, 132), "MPTCP": (2, 1, 262), "DCCP": (2, 6, 33), "UDP-Lite": (2, 2, 136), "L2TP": (2, 2, 115),
    "ICMP": (2, 2, 1), "netlink of the packet filter": (16, 3, 12), "netlink of socket diagnosis": (16, 3, 4),
    "netlink of the audit": (16, 3, 9), "netlink of IPsec": (16, 3, 6), "netlink of the cipher list": (16, 3, 21),
}.items():
    try:
        socket.socket(*arguments).close()
        breach(f"a socket of {what}")
    except OSError as error:
        if error.errno not in (*NO, *GONE):
            breach(f"{what}: {error}")
for arguments in ((2, 1, 0), (2, 2, 0), (2, 1, 6), (2, 2, 17), (10, 1, 0), (1, 1, 0), (16, 3, 0)):
    socket.socket(*arguments).close()
