#!/usr/bin/env python3
"""Checks agreement.pml with spin: all states of each configuration below, and that the model without one of its rules
fails. usage: check_agreement.py SPIN COMPILER small|five"""

import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

MODEL = pathlib.Path(__file__).resolve().parent / "agreement.pml"
MEMORY = 2 << 30  # bytes
SECONDS = 120  # of processor time, for one search

SMALL = [
    {"N": 3},
    {"N": 3, "ARITY": 1},
    {"N": 3, "MEMBERS": 0b110},  # rank 0 is not a member
    {"N": 3, "MEMBERS": 0b101},  # in the chain, the inner rank is not a member
    {"N": 3, "AGREEMENTS": 2},
    {"N": 3, "ARITY": 1, "AGREEMENTS": 2},
    {"N": 4, "ARITY": 1},
    {"N": 4},
    {"N": 4, "ARITY": 3},
    {"N": 4, "MEMBERS": 0b1110},
    {"N": 4, "MEMBERS": 0b1101},
    {"N": 4, "MEMBERS": 0b1101, "ARITY": 1},
    {"N": 4, "MEMBERS": 0b1001, "ARITY": 3},
    {"N": 4, "DEATHS": 3},
    {"N": 4, "AGREEMENTS": 2},
]
FIVE = [
    {"N": 5},
    {"N": 5, "ARITY": 1},
    {"N": 5, "MEMBERS": 0b11110},
    {"N": 5, "MEMBERS": 0b11101},  # rank 1, the parent of 3 and 4, is not a member
    {"N": 5, "MEMBERS": 0b11001, "ARITY": 4},
]
# A configuration in which the model fails without the rule, and the assertion that then fails.
AGREEMENT = r"decided\[(other_|at_)\]==value_"
VALIDITY = r"\(value_\|failed_\)"
LIVENESS = r"\(\(up&members\)&\(1<<0\)\)==0"
MUTATIONS = {
    "DECIDES_EARLY": ({"N": 3}, VALIDITY),
    "FORGETS_DECISION": ({"N": 3}, AGREEMENT),
    "KEEPS_REPORTS": ({"N": 4, "ARITY": 1}, AGREEMENT),
    "RELAY_KEEPS_DECISION": ({"N": 5, "ARITY": 4, "MEMBERS": 0b11001}, AGREEMENT),
    "NO_BALLOT_CHECK": ({"N": 4, "ARITY": 3}, LIVENESS),
    "NO_NEW_REPORT": ({"N": 4}, LIVENESS),
    "NO_ANSWER": ({"N": 4}, LIVENESS),
}
DEFAULTS = {"MEMBERS": 0, "ARITY": 2, "DEATHS": 2, "AGREEMENTS": 1}


def limit():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


class Searcher:
    """The search of all states for one number of ranks, compiled once. With 4 ranks it also finds runs without end."""

    def __init__(self, spin, compiler, ranks, folder):
        self.folder = folder
        self.cycles = ranks == 4
        self.run(spin, "-a", f"-DN={ranks}", f"-DINSTANCES={1 if ranks == 5 else 2}", MODEL)
        # All steps use shared variables: no reduction is possible. NOCOMP stores a state as it is, which takes less time
        # than to leave out its constant bytes. Compiled and linked apart, because a compiler cache keeps objects only.
        # With fewer than 5 ranks, optimising the search takes longer than the search.
        self.run(*compiler, "-O1" if ranks == 5 else "-O0", "-w", "-DNOREDUCE", "-DNOFAIR",
                 *(["-DNP"] if self.cycles else ["-DSAFETY", "-DNOCOMP"]), "-c", "-o", "pan.o", "pan.c")
        self.run(*compiler, "-o", "pan", "pan.o")

    def run(self, *command, environment=None):
        result = subprocess.run(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                check=False, preexec_fn=limit, env={**os.environ, **(environment or {})})
        if result.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}: exit status {result.returncode}\n{result.stdout}")
        return result.stdout

    def search(self, parameters, mutation=None):
        number = int(re.search(rf"#define {mutation} (\d+)\n", MODEL.read_text())[1]) if mutation else 0
        values = {**DEFAULTS, **parameters, "MUTATION": number}
        return self.run("./pan", "-n", "-m20000", "-w22" if values["N"] == 5 else "-w18",
                        *(["-l"] if self.cycles else []), environment={name: str(values[name]) for name in values})


def report(parameters, what, output):
    states = re.search(r"([\de+.]+) states, stored", output)
    name = " ".join(f"{name}={value:#b}" if name == "MEMBERS" else f"{name}={value}"
                    for name, value in parameters.items())
    print(f"{name:40} {what:60} {states[1] if states else '?':>9} states", flush=True)


def holds(output):
    return "errors: 0" in output and "not completed" not in output and "too small" not in output


def check(spin, compiler, group):
    good = True
    configurations = {"small": SMALL, "five": FIVE}[group]
    for ranks in sorted({parameters["N"] for parameters in configurations}):
        with tempfile.TemporaryDirectory(prefix="tutti_model_") as folder:
            searcher = Searcher(spin, compiler, ranks, folder)
            for parameters in configurations:
                if parameters["N"] != ranks:
                    continue
                output = searcher.search(parameters)
                held = holds(output)
                what = "agrees, and each run ends" if searcher.cycles else "agrees"
                report(parameters, what if held else "FAILS", output)
                if not held:
                    print(output)
                    good = False
            for mutation, (parameters, assertion) in MUTATIONS.items():
                if parameters["N"] != ranks:
                    continue
                output = searcher.search(parameters, mutation)
                failed = "errors: 1" in output and re.search(rf"assertion violated .*{assertion}", output)
                report(parameters, f"{mutation}: " + ("fails, as it must" if failed else "DOES NOT FAIL"), output)
                if not failed:
                    print(output)
                    good = False
    return good


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[-1] not in ("small", "five"):
        sys.exit(__doc__)
    sys.exit(0 if check(sys.argv[1], sys.argv[2:-1], sys.argv[-1]) else 1)
