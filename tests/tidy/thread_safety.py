#!/usr/bin/env python3
"""Checks the locks of src/os/mutex.h with Clang: which code accesses which data, holding which mutex.
Usage: thread_safety.py SOURCE_ROOT BUILD_ROOT. Prints the findings; exit status 1 if there is any, 77 (skipped)
without Clang. Looks at the sources in BUILD_ROOT/compile_commands.json that include the header, if not farther
away than by one header between: what is guarded is private to a class, whose sources include the class's header."""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1]).resolve()
BUILD = pathlib.Path(sys.argv[2]).resolve()
MUTEX = "os/mutex.h"
# The compiler options that the sources need: Clang does not know all options of GCC.
KEPT = re.compile(r"-[ID]|-isystem|-std=")
SKIPPED = 77


def includes(path):
    return set(re.findall(r'^#include "([^"]+)"', path.read_text(), re.M))


def concerned():
    """The commands of the sources that the check is for: (folder, source, arguments)."""
    headers = {str(p.relative_to(ROOT / "src")): includes(p) for p in (ROOT / "src").rglob("*.h")}
    wanted = {MUTEX} | {name for name, included in headers.items() if MUTEX in included}
    found = {}
    for command in json.loads((BUILD / "compile_commands.json").read_text()):
        folder = pathlib.Path(command["directory"])
        source = (folder / command["file"]).resolve()
        if ROOT / "src" not in source.parents or source.suffix != ".cc" or not wanted & includes(source):
            continue
        words = iter(shlex.split(command["command"]))
        kept = []
        for word in words:
            if KEPT.match(word):
                kept.append(word)
                if word == "-isystem":
                    kept.append(next(words))
        found[source] = (folder, source, kept)
    return [found[source] for source in sorted(found)]


def together(commands):
    """The sources of a target, which are compiled with the same arguments, in one run of Clang: the headers are read
    once. [(folder, sources, arguments)]"""
    targets = {}
    for folder, source, arguments in commands:
        targets.setdefault((folder, *arguments), []).append(source)
    return [(folder, sources, arguments) for (folder, *arguments), sources in targets.items()]


def run(folder, arguments, text=None):
    """What Clang has to say, empty if nothing."""
    done = subprocess.run(arguments, cwd=folder, input=text, capture_output=True, text=True, check=False)
    return done.stderr or (f"exit status {done.returncode}" if done.returncode != 0 else "")


def precompile(compiler, commands, folder):
    """Half of the time would go into reading the C++ library: those of its headers that src's headers include, compiled
    once. Returns what Clang needs to use them, and what it had to say."""
    included = {name for p in (ROOT / "src").rglob("*.h") for name in re.findall(r"^#include <([a-z_]+)>", p.read_text(), re.M)}
    header = pathlib.Path(folder) / "library.h"
    header.write_text("".join(f"#include <{name}>\n" for name in sorted(included)))
    compiled = str(header.with_suffix(".pch"))
    options = [word for word in commands[0][2] if not word.startswith("-I")]
    return ["-include-pch", compiled], run(folder, [compiler, *options, "-x", "c++-header", str(header), "-o", compiled])


def check(compiler, precompiled, folder, sources, arguments):
    return run(folder, [compiler, *precompiled, *arguments, "-fsyntax-only", "-Wno-everything", "-Wthread-safety", "-Werror",
                        "-x", "c++", "-"], "".join(f'#include "{source}"\n' for source in sources))


def main():
    compiler = next((name for name in ("clang++", "clang++-14") if shutil.which(name)), None)
    if compiler is None:
        print("skipped: there is no clang++ here (Debian's package clang)")
        return SKIPPED
    commands = concerned()
    if not commands:
        print(f"no source in {BUILD}/compile_commands.json includes {MUTEX}")
        return 1
    processors = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(processors) as pool:
        precompiled, wrong = precompile(compiler, commands, folder)
        findings = [text for text in [wrong, *pool.map(lambda c: check(compiler, precompiled, *c), together(commands))] if text]
    print("".join(findings), end="")
    print(f"{len(commands)} sources, {len(findings)} targets with findings")
    return 1 if findings else 0


sys.exit(main())
