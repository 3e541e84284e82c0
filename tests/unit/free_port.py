#!/usr/bin/env python3
"""Prints a port of this host that was free a moment ago. Below the kernel's range for outgoing connections, which tests
that run at the same time might take first."""
import random
import socket

for port in random.sample(range(10_000, 30_000), 1000):
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            continue
    print(port)
    break
