"""Writes all packets of an interface to a file, until it gets SIGTERM. Usage: capture.py INTERFACE FILE READY_FILE"""

import pathlib
import signal
import socket
import sys

ALL_PROTOCOLS = 3  # ETH_P_ALL
LONGEST = 1 << 18  # a segment that the interface would cut


def main() -> None:
    interface, file, ready = sys.argv[1:]
    going_on = True

    def stop(_signal: int, _frame: object) -> None:
        nonlocal going_on
        going_on = False

    signal.signal(signal.SIGTERM, stop)
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
    packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
    packets.bind((interface, 0))
    packets.settimeout(0.1)
    with open(file, "wb") as out:
        pathlib.Path(ready).touch()
        while True:
            try:
                out.write(packets.recv(LONGEST))
            except TimeoutError:
                if not going_on:
                    return


if __name__ == "__main__":
    main()
