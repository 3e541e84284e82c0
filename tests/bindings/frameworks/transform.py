"""Transforms real and complex arrays by mpi4py-fft, there and back, distributed by slabs and by pencils, and prints
what the spectra are."""

import numpy as np
from mpi4py import MPI
from mpi4py_fft import PFFT, newDistArray


def main():
    world = MPI.COMM_WORLD
    shape = (24, 30, 36)
    whole = np.random.default_rng(1).random(shape)
    for kind in (float, complex):
        for slab in (True, False):
            fft = PFFT(world, shape, axes=(0, 1, 2), dtype=kind, slab=slab)
            field = newDistArray(fft, False)
            field[:] = whole[field.local_slice()]
            spectrum = fft.forward(field, newDistArray(fft, True))
            expected = (np.fft.rfftn if kind is float else np.fft.fftn)(whole)[spectrum.local_slice()] / whole.size
            back = fft.backward(spectrum, newDistArray(fft, False))
            wrong = max(abs(spectrum - expected).max(), abs(back - field).max())
            good = world.allreduce(bool(wrong < 1e-12), op=MPI.LAND)
            energy = world.allreduce(float((abs(expected) ** 2).sum()))
            if world.rank == 0:
                print(f"spectrum of {kind.__name__}, slab {slab}: {'right' if good else 'WRONG'}, energy {energy:.9e}")
            if not good:
                raise SystemExit(1)


main()
