#!/usr/bin/env python3
"""Every test case of a program that Meson runs by tags or names is run by one of its tests: a tag that no meson.build
names would leave its cases out. Usage: cases_run.py BUILD_ROOT PROGRAM...; exit status 1 if a case is not run."""

import json
import pathlib
import subprocess
import sys


def names(program, arguments):
    """The test cases that Catch selects with these arguments. Its exit status is their number."""
    listed = subprocess.run([program, "--list-test-names-only", *arguments], capture_output=True, text=True, check=False)
    return {line.strip() for line in listed.stdout.splitlines() if line.strip()}


def main(build, programs):
    tests = json.loads(subprocess.run(["meson", "introspect", build, "--tests"], capture_output=True, text=True,
                                      check=True).stdout)
    missing = cases = 0
    for program in programs:
        run = set()
        for test in tests:
            if pathlib.Path(test["cmd"][0]).resolve() == pathlib.Path(program).resolve():
                run |= names(program, test["cmd"][1:])
        every = names(program, [])
        cases += len(every)
        for name in sorted(every - run):
            missing += 1
            print(f"{program}: no test of any meson.build runs: {name}")
    print(f"{cases} test cases of {len(programs)} programs, {missing} not run")
    return 1 if missing or not cases else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
