"""Solves Poisson's equation on a square of N x N points (-n N, 16) by petsc4py, -repeat R times (1), with each of -ksp
TYPE,... and prints iterations and residuals."""

import sys
import time

import petsc4py

petsc4py.init(sys.argv)
# pylint: disable-next=wrong-import-position
from petsc4py import PETSc


def laplacian(n):
    """The five-point stencil; each rank has some of the rows."""
    grid = PETSc.DMDA().create([n, n], stencil_width=1, stencil_type=PETSc.DMDA.StencilType.STAR)
    matrix = grid.createMatrix()
    row = PETSc.Mat.Stencil()
    column = PETSc.Mat.Stencil()
    (left, right), (low, high) = grid.getRanges()
    for j in range(low, high):
        for i in range(left, right):
            row.index = (i, j)
            for (x, y), value in (((i, j), 4), ((i - 1, j), -1), ((i + 1, j), -1), ((i, j - 1), -1), ((i, j + 1), -1)):
                if 0 <= x < n and 0 <= y < n:
                    column.index = (x, y)
                    matrix.setValueStencil(row, column, value)
    matrix.assemble()
    return matrix


def main():
    options = PETSc.Options()
    repeat = options.getInt("repeat", 1)
    matrix = laplacian(options.getInt("n", 16))
    x, b = matrix.createVecs()
    b.set(1.0)
    for kind in options.getString("ksp", "cg,pipecg,gmres,bcgs,tfqmr").split(","):
        solver = PETSc.KSP().create()
        solver.setOperators(matrix)
        solver.setType(kind)
        solver.getPC().setType("jacobi")
        solver.setTolerances(rtol=1e-10)
        start = time.perf_counter()
        for _ in range(repeat):
            x.set(0.0)
            solver.solve(b, x)
        taken_us = (time.perf_counter() - start) * 1e6
        iterations = solver.getIterationNumber()
        residual = solver.getResidualNorm()
        PETSc.Sys.Print(f"{kind}: {iterations} iterations, residual {residual:.17e}, sum {x.sum():.17e}")
        if repeat > 1:
            PETSc.Sys.Print(f"time of an iteration of {kind}: {taken_us / repeat / iterations:.2f} us")


main()
