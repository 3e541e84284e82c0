#!/usr/bin/env python3
"""Runs the commands of a page: the blocks that begin with ```sh, each as one script of bash, in their order.

usage: commands.py SOURCE BUILD PAGE...

They run in a folder of their own, which has links to what the repository has, so that `build/tools/tutti` is the one
that was built; the programs are found by their names as well, as where tutti is installed, and so is the library, by
pkg-config. Performance programs time only a few calls of each size: without -n they take as many as a good median needs,
which is nearly all of the time of the commands. A block that begins with ```sh untested: REASON is counted and not run. A block without a language has no
command: what looks like one is an error, so that none escapes. A block that begins with ```json file=NAME is that file.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

SECONDS = 800  # of a block, on a machine that does other things as well
TIMED_CALLS = 3  # of each size
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = r"(?:\S*/)?(?:tutti|\w+_perf|meson|ninja|mpirun\S*|mpiexec|srun|torchrun|pip|python3?|cc|tools/\w+|perf/\w+)"
COMMAND = re.compile(rf"^(?:\$ )?(?:\w+=\S+ )*{PROGRAMS} ", re.MULTILINE)


def blocks(page):
    """(line, reason not to run it, text) of each block of commands."""
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        language, _, rest = match.group(1).partition(" ")
        if not language and COMMAND.search(match.group(2)) and not match.group(2).startswith("$ "):
            sys.exit(f"{page}:{line}: a command in a block that is not ```sh")
        if language == "sh":
            if rest and not re.fullmatch(r"untested: \S.*", rest):
                sys.exit(f"{page}:{line}: a block of commands is ```sh or ```sh untested: REASON")
            yield line, rest.removeprefix("untested: "), match.group(2)


def write_files(page, folder):
    """The blocks that are files: ```json file=NAME."""
    for match in FENCE.finditer(page.read_text(encoding="utf-8")):
        name = re.fullmatch(r"\w+ file=(\S+)", match.group(1))
        if name:
            (folder / name.group(1)).write_text(match.group(2), encoding="utf-8")


def link_all(source, folder, left_out):
    """Links in `folder` to all that `source` has but these names."""
    for entry in source.iterdir():
        if entry.name not in left_out:
            (folder / entry.name).symlink_to(entry)


def link_performance_programs(build, folder):
    """What build/perf has; the programs are scripts that call them with -n, of which the last one counts."""
    programs = [program for program in (build / "perf").glob("*_perf") if program.is_file()]
    folder.mkdir()
    link_all(build / "perf", folder, [program.name for program in programs])
    for program in programs:
        script = folder / program.name
        script.write_text(f'#!/bin/sh\nexec "{program}" -n {TIMED_CALLS} "$@"\n', encoding="utf-8")
        script.chmod(0o755)


def environment(build, programs):
    """Where tutti is as if it were installed."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}
    found["PATH"] = f"{programs}:{found['PATH']}"
    found["PKG_CONFIG_PATH"] = str(programs)
    found["LD_LIBRARY_PATH"] = str(build / "src/api")
    found["PYTHONPATH"] = str(build.parent / "bindings/python")
    # As root, which the tests may run as.
    found["OMPI_ALLOW_RUN_AS_ROOT"] = found["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    found["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
    found["BASH_ENV"] = ""
    return found


PACKAGE = """Name: tutti
Description: as built
Version: 0
Cflags: -I{source}/include
Libs: -L{build}/src/api -ltutti
"""


def run(script, folder, variables):
    """Exit status and output; what it has started ends with it."""
    with subprocess.Popen(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=variables, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=SECONDS)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return 124, output + f"\nnot done after {SECONDS} s"


def main(source, build, pages):
    failed = done = 0
    reasons = []
    with tempfile.TemporaryDirectory() as name:
        top = pathlib.Path(name)
        programs = top / "bin"
        programs.mkdir()
        link_performance_programs(build, top / "perf")
        for program in [build / "tools/tutti", *(top / "perf").glob("*_perf")]:
            (programs / program.name).symlink_to(program)
        (programs / "tutti.pc").write_text(PACKAGE.format(source=source, build=build), encoding="utf-8")
        for page in pages:
            folder = top / page.stem
            folder.mkdir()
            link_all(source, folder, [".git", "build"])
            (folder / "build").mkdir()
            link_all(build, folder / "build", ["perf"])
            (folder / "build/perf").symlink_to(top / "perf")
            write_files(page, folder)
            for line, reason, script in blocks(page):
                if reason:
                    reasons.append(f"{page.name}:{line}: {reason}")
                    continue
                begin = time.monotonic()
                status, output = run(script, folder, environment(build, programs))
                done += 1
                print(f"{page.name}:{line}: exit status {status}, {time.monotonic() - begin:.1f} s", flush=True)
                if status != 0:
                    failed += 1
                    print(script + output[-4000:])
    print(f"{done} blocks of commands run, {failed} failed, {len(reasons)} not run:", *reasons, sep="\n  ")
    return 1 if failed or not (done or reasons) else 0


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(),
                  [pathlib.Path(page).resolve() for page in sys.argv[3:]]))
