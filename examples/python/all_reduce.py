#!/usr/bin/env python3
"""Adds up an array over the ranks of a job. Start it with any launcher, or, for two ranks of this machine:

torchrun --nproc-per-node 2 all_reduce.py
tutti run -n 2 python3 examples/python/all_reduce.py
"""

import sys

import numpy as np

import tutti


def main() -> int:
    with tutti.Communicator.from_environment() as comm:
        values = np.full(1000, comm.rank, np.float32)
        # In place: when the call returns, the result is there.
        comm.all_reduce(values, out=values)
        print(f"rank {comm.rank} of {comm.size}: sum {values[0]:g}")
        return 0 if (values == comm.size * (comm.size - 1) / 2).all() else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except tutti.Error as error:
        sys.exit(f"error {error.code}: {error}")
