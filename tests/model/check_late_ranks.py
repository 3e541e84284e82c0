#!/usr/bin/env python3
"""Checks late_ranks.pml with spin: all states of each configuration below, and that the model without one of its rules
fails. usage: check_late_ranks.py SPIN COMPILER"""

import pathlib
import re
import resource
import subprocess
import sys
import tempfile

MODEL = pathlib.Path(__file__).resolve().parent / "late_ranks.pml"
MEMORY = 4 << 30  # bytes
SECONDS = 240  # of processor time, for one search

CONFIGURATIONS = [
    {"TIMEOUTS": 1, "TOGETHER": 1},
    {"TIMEOUTS": 1, "DEATHS": 1, "TOGETHER": 1, "PHASES": 4, "CALLS": 1},
]
# A configuration in which the model fails without the rule, and what spin then finds.
MUTATIONS = {
    "ANY_OF_ALL_LATE": ({"TIMEOUTS": 1, "DEATHS": 1, "TOGETHER": 1, "PHASES": 4}, r"assertion violated .*contributors"),
    "TELLS_ONCE": ({"TIMEOUTS": 1, "TOGETHER": 1, "PHASES": 4}, r"invalid end state"),
}


def limit():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


def search(spin, compiler, parameters):
    with tempfile.TemporaryDirectory(prefix="tutti_model_") as folder:
        output = ""
        for command in (
            [spin, "-a", *(f"-D{name}={value}" for name, value in parameters.items()), MODEL],
            # Compiled and linked apart, because a compiler cache keeps objects only.
            [*compiler, "-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=2048", "-c", "-o", "pan.o", "pan.c"],
            [*compiler, "-o", "pan", "pan.o"],
            ["./pan", "-n", "-m20000", "-w22"],
        ):
            result = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                    check=False, preexec_fn=limit)
            output = result.stdout
            if result.returncode != 0:
                sys.exit(f"{' '.join(map(str, command))}: exit status {result.returncode}\n{output}")
        return output


def check(spin, compiler):
    good = True

    def report(parameters, what, is_right, output):
        nonlocal good
        states = re.search(r"([\de+.]+) states, stored", output)
        name = " ".join(f"{one}={value}" for one, value in parameters.items())
        print(f"{name:50} {what:50} {states[1] if states else '?':>9} states", flush=True)
        if not is_right:
            print(output)
            good = False

    for parameters in CONFIGURATIONS:
        output = search(spin, compiler, parameters)
        held = "errors: 0" in output and "not completed" not in output and "too small" not in output
        report(parameters, "one group, and each rank ends" if held else "FAILS", held, output)
    for mutation, (parameters, finding) in MUTATIONS.items():
        number = re.search(rf"#define {mutation} +(\d+) ", MODEL.read_text())[1]
        output = search(spin, compiler, {**parameters, "MUTATION": number})
        failed = "errors: 1" in output and re.search(finding, output) is not None
        report(parameters, f"{mutation}: " + ("fails, as it must" if failed else "DOES NOT FAIL"), failed, output)
    return good


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(0 if check(sys.argv[1], sys.argv[2:]) else 1)
