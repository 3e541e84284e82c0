"""Forwards packets between two interfaces, and alters one byte in some of those that carry much data over TCP.

The checksum of each packet is made anew, so only the receiving program can see the change. Usage: alter.py INTERFACE
INTERFACE EVERY READY_FILE: alters one of EVERY such packets; 0: none. Ends with SIGTERM, and then says how many.
"""

import pathlib
import selectors
import signal
import socket
import struct
import sys

ALL_PROTOCOLS = 3  # ETH_P_ALL
OUTGOING = 4  # PACKET_OUTGOING
LONGEST = 1 << 18
ETHERNET_BYTES = 14
IPV4 = b"\x08\x00"
TCP = 6
MUCH_DATA = 500  # bytes: of a message of a collective, not of a handshake


def checksum(data: bytes) -> int:
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Alterer:
    def __init__(self, every: int) -> None:
        self.every = every
        self.seen = 0
        self.altered = 0

    def passed_on(self, frame: bytes) -> bytes:
        if frame[12:14] != IPV4 or frame[ETHERNET_BYTES + 9] != TCP:
            return frame
        packet = bytearray(frame[ETHERNET_BYTES:])
        del packet[struct.unpack("!H", packet[2:4])[0] :]
        begin = (packet[0] & 15) * 4
        data = begin + (packet[begin + 12] >> 4) * 4
        if self.every and len(packet) - data >= MUCH_DATA:
            self.seen += 1
            if self.seen % self.every == 0:
                packet[data + (len(packet) - data) // 2] ^= 0x20
                self.altered += 1
        packet[begin + 16 : begin + 18] = b"\0\0"
        pseudo = bytes(packet[12:20]) + struct.pack("!BBH", 0, TCP, len(packet) - begin)
        packet[begin + 16 : begin + 18] = struct.pack("!H", checksum(pseudo + bytes(packet[begin:])))
        return frame[:ETHERNET_BYTES] + bytes(packet)


def main() -> None:
    names, every, ready = sys.argv[1:3], int(sys.argv[3]), sys.argv[4]
    going_on = True

    def stop(_signal: int, _frame: object) -> None:
        nonlocal going_on
        going_on = False

    signal.signal(signal.SIGTERM, stop)
    ends = []
    for name in names:
        end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
        end.bind((name, 0))
        ends.append(end)
    alterer = Alterer(every)
    selector = selectors.DefaultSelector()
    for end, other in (tuple(ends), tuple(reversed(ends))):
        selector.register(end, selectors.EVENT_READ, other)
    pathlib.Path(ready).touch()
    while going_on:
        for key, _ in selector.select(0.1):
            frame, source = key.fileobj.recvfrom(LONGEST)
            if source[2] != OUTGOING:
                key.data.send(alterer.passed_on(frame))
    print(f"{alterer.altered} of {alterer.seen} packets were altered")


if __name__ == "__main__":
    main()
