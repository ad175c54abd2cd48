"""Which network interface has an address: gloo must meet its peers there, and left alone it asks the host's name.

A host's own name often resolves to loopback, where ranks of other nodes are not.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
import sys

_SIOCGIFCONF = 0x8912  # Linux: the IPv4 addresses of all interfaces, secondary ones too
_RECORD_BYTES = 40  # struct ifreq on 64 bit: 16 bytes of name, then a sockaddr_in: family, port, address
_RECORDS_MAX = 1024


def interface_of(ip: str) -> str:
    """The name of the interface that has the IPv4 address `ip`; "" where none has, or where nobody can tell."""
    if not sys.platform.startswith("linux"):
        return ""
    if ip.startswith("127."):
        return "lo"
    records = array.array("B", bytes(_RECORD_BYTES * _RECORDS_MAX))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        address, _ = records.buffer_info()
        answer = fcntl.ioctl(asking, _SIOCGIFCONF, struct.pack("iL", len(records), address))
    filled = records.tobytes()[: struct.unpack("iL", answer)[0]]
    for at in range(0, len(filled), _RECORD_BYTES):
        record = filled[at : at + _RECORD_BYTES]
        if socket.inet_ntoa(record[20:24]) == ip:
            # An alias such as eth0:1 is an address of eth0.
            return record[:16].split(b"\0", 1)[0].decode().partition(":")[0]
    return ""
