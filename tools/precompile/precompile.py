#!/usr/bin/env python3
"""Usage: precompile.py COMMANDS TARGET HEADER OUTPUT DEPFILE

Precompiles HEADER into OUTPUT with the arguments of TARGET, a folder of objects in COMMANDS, Meson's
compile_commands.json: GCC ignores a precompiled header whose arguments differ from those of the source. Runs in the
build folder, again whenever COMMANDS is new, and keeps OUTPUT if what it is made from is the same.

OUTPUT.sum identifies what OUTPUT is made from, for the compiler cache (CCACHE_PCH_EXTSUM): OUTPUT itself differs from one
checkout to the next."""

import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys


def arguments_of(commands, target, header):
    """The compiler and its arguments, without the compiler cache, the names of files and HEADER itself."""
    command = next((c["command"] for c in commands if f"/{target}/" in f"/{c['output']}"), None)
    if command is None:
        sys.exit(f"precompile: the build has no source of {target}")
    words = iter(shlex.split(command))
    kept = []
    for word in words:
        if word in ("-MQ", "-MF", "-o", "-c"):
            next(words)
        elif word == "-include" and (included := next(words)) != os.path.basename(header):
            kept += [word, included]
        elif word not in ("-MD", "-include") and (kept or os.path.basename(word) not in ("ccache", "sccache")):
            kept.append(word)
    return kept


def run(words):
    return subprocess.run(words, check=True, capture_output=True)


def main():
    commands_path, target, header, output, depfile = sys.argv[1:]
    commands = json.loads(pathlib.Path(commands_path).read_text(encoding="utf-8"))
    compile_it = [*arguments_of(commands, target, header), "-x", "c++-header", header]
    # With macros, without the lines with the places of the headers.
    text = re.sub(rb"^# .*\n", b"", run([*compile_it, "-E", "-dD", "-MD", "-MQ", output, "-MF", depfile]).stdout, flags=re.M)
    with open(depfile, "a", encoding="utf-8") as rules:
        rules.write(f"{output}: {os.path.relpath(commands_path)}\n")
    version = run([compile_it[0], "-v"]).stderr
    flags = [word for word in compile_it[:-1] if not word.startswith("-I")]
    made_from = hashlib.sha256(b"\0".join([text, version, *map(os.fsencode, flags)])).hexdigest()
    made, sum_file = pathlib.Path(output), pathlib.Path(output + ".sum")
    if made.exists() and sum_file.exists() and sum_file.read_text(encoding="utf-8").strip() == made_from:
        return
    sum_file.unlink(missing_ok=True)
    run([*compile_it, "-o", output])
    sum_file.write_text(made_from + "\n", encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(error.stderr.decode(errors="replace") + str(error))
