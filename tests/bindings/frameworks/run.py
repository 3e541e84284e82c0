#!/usr/bin/env python3
"""Runs MPI programs of others without and with the binding of bindings/mpi: run.py BUILD FOLDER [CHECK...].

BUILD is the build folder, FOLDER where Python packages and results lie. A check passes if the program's answers are the
same with the binding, and collectives were taken. The last line is "N passed, N failed"."""

import glob
import os
import re
import shutil
import subprocess
import sys
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))
MPI4PY = "mpi4py==4.1.2"
# The first three start processes that the binding does not serve, and Debian's MPICH cannot start them. The last calls
# a nonblocking and a blocking collective of one communicator in another order on one rank than on the others, which the
# standard forbids.
WITHOUT = ["-e", "spawn", "-e", "dynproc", "-e", "util_pool", "-x", "testIAgree"]
# MPICH's passive one-sided communication, on which the latter is based, waits for ranks that are inside tutti:
# docs/mpi.md.
WITHOUT_MPICH = [*WITHOUT, "-e", "rma", "-e", "util_sync"]
# Debian's, because its packages are for that one.
PYTHON = "/usr/bin/python3"


class Failed(Exception):
    """What a check found to be wrong."""


def run(family, build, place, ranks, command, with_binding, limit_s=600):
    """What the program printed."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
    options = ["--oversubscribe"] if family == "openmpi" else []
    # Many of their communicators have few calls, and many calls are short: tutti serves all of these here.
    binding = ["env", "TUTTI_MPI_SUMMARY=1", "TUTTI_MPI_AFTER=0", "TUTTI_MPI_NONBLOCKING=0",
               f"LD_PRELOAD={build}/bindings/mpi/libtutti_{family}.so"]
    # Ends the launcher, and with it the ranks.
    line = ["timeout", "-k", "10", str(limit_s), "mpirun." + family, *options, "-n", str(ranks),
            *(binding if with_binding else []), *command]
    done = subprocess.run(line, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, text=True, errors="replace", check=False)
    if done.returncode != 0:
        end = "\n".join("    " + printed[:200] for printed in done.stdout.splitlines()[-25:])
        why = f"took more than {limit_s} s" if done.returncode in (124, 137) else f"exit status {done.returncode}"
        raise Failed(f"{why} {'with' if with_binding else 'without'} the binding\n{end}")
    return done.stdout


def must_take(output):
    """How many calls were taken."""
    taken = r"^tutti: +MPI_\w+: (\d+) calls?, .*, taken(?:, \d+ failed)?$"
    calls = sum(int(calls) for calls in re.findall(taken, output, re.M))
    if calls == 0:
        raise Failed("no collective was taken")
    return calls


def must_agree(answers, at_least=1):
    """answers: those without the binding, and those with it."""
    if answers[0] != answers[1] or len(answers[0]) < at_least:
        raise Failed(f"without: {answers[0]}, with: {answers[1]}")


def compare(build, folder, name, ranks, command, answers, prepare=None, at_least=1):
    """Runs the command twice, each time in a new folder, in which prepare(place) puts what it reads. What
    answers(output, place) returns must not differ."""
    found = []
    for with_binding in (False, True):
        place = os.path.join(folder, name, "with" if with_binding else "without")
        shutil.rmtree(place, ignore_errors=True)
        os.makedirs(place)
        if prepare:
            prepare(place)
        output = run("openmpi", build, place, ranks, command, with_binding)
        found.append(answers(output, place))
    must_agree(found, at_least)
    return f"{len(found[1])} answers, {must_take(output)} collectives taken"


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def make_mpi4py(family, place):
    """Its sources, built for the family, with its tests."""
    python = os.path.join(place, "venv/bin/python")
    ready = os.path.join(place, "ready")
    if os.path.exists(ready) and read(ready) == MPI4PY:
        return python
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", os.path.join(place, "venv")], check=True)
    pip = [python, "-m", "pip"]
    subprocess.run([*pip, "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", place, MPI4PY], check=True)
    archive = next(name for name in os.listdir(place) if name.endswith(".tar.gz"))
    with tarfile.open(os.path.join(place, archive)) as tar:
        tar.extractall(place)
    source = os.path.join(place, archive.removesuffix(".tar.gz"))
    # Not optimised: half a minute in place of ten.
    compiler = dict(os.environ, MPI4PY_BUILD_MPICC="/usr/bin/mpicc." + family, CFLAGS="-O0")
    subprocess.run([*pip, "install", "-q", "--no-cache-dir", source, "numpy"], env=compiler, check=True)
    os.rename(os.path.join(source, "test"), os.path.join(place, "test"))
    write(ready, MPI4PY)
    return python


def passed_tests(output):
    """How many tests each rank has run, of which none has failed. What a rank has skipped it says behind the OK. Lines
    of two ranks may have become one."""
    ran = sorted(int(count) for count in re.findall(r"Ran (\d+) tests? in ", output))
    passed = re.findall(r"OK(?![A-Za-z])", output)
    if len(passed) != len(ran):
        raise Failed(f"{len(ran)} ranks ran tests, {len(passed)} passed them")
    return ran


def check_mpi4py(family, build, folder):
    place = os.path.join(folder, "mpi4py-" + family)
    command = [make_mpi4py(family, place), "test/main.py", "--no-builddir", "-q",
               *(WITHOUT_MPICH if family == "mpich" else WITHOUT)]
    counts = []
    for with_binding in (False, True):
        output = run(family, build, place, 2, command, with_binding, limit_s=1200)
        counts.append(passed_tests(output))
    must_agree(counts, 2)
    return f"{counts[1][-1]} tests, {must_take(output)} collectives taken"


def mpi4py(build, folder):
    """mpi4py's own tests with Open MPI."""
    return check_mpi4py("openmpi", build, folder)


def mpi4py_mpich(build, folder):
    """mpi4py's own tests with MPICH."""
    return check_mpi4py("mpich", build, folder)


def mpi4py_fft(build, folder):
    """Transforms of three dimensions: MPI_Alltoallw with datatypes of parts of arrays."""
    return compare(build, folder, "mpi4py_fft", 4, [PYTHON, os.path.join(HERE, "transform.py")],
                   lambda output, _: re.findall(r"^spectrum .*$", output, re.M), at_least=4)


def hpcc(build, folder):
    """The HPC Challenge benchmarks: residuals, errors, and what was checked; not times."""
    def prepare(place):
        lines = read("/usr/share/doc/hpcc/examples/_hpccinf.txt").splitlines()
        lines[5] = "500 Ns"
        write(os.path.join(place, "hpccinf.txt"), "\n".join(lines) + "\n")

    def answers(_, place):
        checked = r"^(\|\|Ax-b.*|Success=.*|MPIRandomAccess\w*_Errors=.*|.*tests completed.*)$"
        found = re.findall(checked, read(os.path.join(place, "hpccoutf.txt")), re.M)
        if "Success=1" not in found:
            raise Failed(f"no success: {found}")
        return found

    return compare(build, folder, "hpcc", 4, ["hpcc"], answers, prepare, at_least=4)


def lammps(build, folder):
    """Molecular dynamics: step, temperature, energies, pressure."""
    return compare(build, folder, "lammps", 4, ["lmp", "-in", os.path.join(HERE, "melt.lammps")],
                   lambda output, _: re.findall(r"^ +\d+(?: +-?[\d.]+){5} *$", output, re.M), at_least=21)


def petsc(build, folder):
    """Krylov solvers, through petsc4py: numbers of iterations and residuals.

    On two ranks, as sums in another order would differ in the last bits."""
    modules = glob.glob("/usr/lib/petscdir/petsc*/*-real/lib/python3/dist-packages")
    command = ["env", "PYTHONPATH=" + ":".join(modules), PYTHON, os.path.join(HERE, "poisson.py")]
    return compare(build, folder, "petsc", 2, command,
                   lambda output, _: re.findall(r"^\w+: \d+ iterations.*$", output, re.M), at_least=5)


def quantum_espresso(build, folder):
    """Silicon by density functional theory: energies, and how far they are from the last iteration's."""
    # As users run it: the first calls of its thousands of communicators go to the MPI library.
    command = ["env", "-u", "TUTTI_MPI_AFTER", "-u", "TUTTI_MPI_NONBLOCKING", "pw.x", "-in", os.path.join(HERE, "silicon.pw")]
    return compare(build, folder, "quantum_espresso", 2, command,
                   lambda output, _: re.findall(r"^!? +(?:total energy|estimated scf accuracy) .*$", output, re.M),
                   lambda place: os.mkdir(os.path.join(place, "out")), at_least=5)


def examl(build, folder):
    """The likeliest tree of 49 sequences, and its likelihood."""
    data = "/usr/share/doc/examl/testData/"

    def prepare(place):
        with open(os.path.join(place, "49.phy"), "wb") as file:
            subprocess.run(["gzip", "-dc", data + "49.gz"], stdout=file, check=True)
        subprocess.run(["parse-examl", "-s", "49.phy", "-q", data + "49.model", "-m", "DNA", "-n", "49"], cwd=place,
                       stdout=subprocess.DEVNULL, check=True)

    def answers(output, place):
        return [*re.findall(r"^Likelihood .*$", output, re.M), read(os.path.join(place, "ExaML_result.T"))]

    # One of the programs among which the package's command chooses; all processors can run it.
    program = "/usr/lib/examl/bin/examl-sse3"
    command = [program, "-s", "49.binary", "-t", data + "49.tree", "-m", "GAMMA", "-n", "T"]
    return compare(build, folder, "examl", 2, command, answers, prepare, at_least=2)


CHECKS = (mpi4py, mpi4py_mpich, mpi4py_fft, hpcc, lammps, petsc, quantum_espresso, examl)


def main():
    build, folder = (os.path.abspath(path) for path in sys.argv[1:3])
    checks = [check for check in CHECKS if check.__name__ in (sys.argv[3:] or [check.__name__])]
    os.makedirs(folder, exist_ok=True)
    passed = failed = 0
    for check in checks:
        print(f"==> {check.__name__}: {check.__doc__.splitlines()[0]}", flush=True)
        try:
            print(f"    {check(build, folder)}", flush=True)
            passed += 1
        except (Failed, OSError, subprocess.CalledProcessError) as error:
            print(f"==> FAILED: {check.__name__}: {error}", flush=True)
            failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


sys.exit(main())
