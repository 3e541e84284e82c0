#!/usr/bin/env python3
"""Least squares by gradient descent with data parallelism, whose gradients are averaged while the next are computed."""

import sys

import numpy as np
from numpy.typing import NDArray

import tutti

STEPS = 400
ROWS, COLUMNS, LAYERS = 64, 8, 4


def data(rank: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """This rank's rows of LAYERS problems, each of which has the solution 0, 1, 2, ..."""
    inputs = np.random.default_rng(rank).normal(size=(LAYERS, ROWS, COLUMNS))
    return inputs, inputs @ np.arange(COLUMNS)


def main() -> int:
    with tutti.Communicator.from_environment() as comm, tutti.Stream() as stream:
        inputs, targets = data(comm.rank)
        weights = np.zeros((LAYERS, COLUMNS))
        gradients = tutti.empty((LAYERS, COLUMNS))
        events = [tutti.Event() for _ in range(LAYERS)]
        for _ in range(STEPS):
            for layer in range(LAYERS):
                errors = inputs[layer] @ weights[layer] - targets[layer]
                gradients[layer] = inputs[layer].T @ errors / ROWS
                comm.all_reduce(gradients[layer], gradients[layer], tutti.Op.AVG, stream=stream)
                events[layer].record(stream)
            for layer, event in enumerate(events):
                event.synchronize()
                weights[layer] -= 0.1 * gradients[layer]
        away = float(abs(weights - np.arange(COLUMNS)).max())
        print(f"rank {comm.rank} of {comm.size}: {away:.1e} from the solution")
        return 0 if away < 1e-6 else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except tutti.Error as error:
        sys.exit(f"error {error.code}: {error}")
