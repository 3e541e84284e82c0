#!/usr/bin/env python3
"""Checks that clang-format would change nothing. Usage: format.py SOURCE_ROOT. Prints what it would change; exit
status 1 if there is any, 77 (skipped) without the version of clang-format that made this format."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1]).resolve()
# Versions differ in details, so all developers must use one.
VERSION = "14."
# Files formatted by hand, with the reason.
BY_HAND = {
    **{f"include/tutti/{part}.h": "C as C programs write it: the star beside the name, constants in columns"
       for part in ("collectives", "communicator", "config", "memory", "operators", "streams", "types")},
    "include/tutti/tutti_mpi.h": "C in the style of MPI's own headers: the star beside the name",
    "src/schedule/schedule.h": "the predicates of a step are a table, one a line",
}
CODE = {".cc", ".cu", ".h", ".c", ".hpp", ".cpp"}
SKIPPED = 77


def sources():
    """Tracked files and new files that git does not ignore; without git, what lies in the folders of sources."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"],
                            capture_output=True, text=True, check=False)
    names = listed.stdout.splitlines() if listed.returncode == 0 else []
    folders = ("src", "include", "tests", "tools", "perf", "examples")
    paths = [ROOT / name for name in names] or [p for top in folders for p in (ROOT / top).rglob("*")]
    return sorted(p for p in paths if p.suffix in CODE and p.is_file())


def formatter():
    """The clang-format of the right version, or None."""
    for name in ("clang-format-14", "clang-format"):
        try:
            said = subprocess.run([name, "--version"], capture_output=True, text=True, check=False).stdout
        except OSError:
            continue
        if f"version {VERSION}" in said:
            return name
    return None


def main():
    for name in BY_HAND:
        # The small tree of tidy_finds.sh does not have them.
        if (ROOT / "include").is_dir() and not (ROOT / name).is_file():
            print(f"{name}: is said to be formatted by hand, and does not exist")
            return 1
    program = formatter()
    if program is None:
        print(f"skipped: there is no clang-format {VERSION}x here")
        return SKIPPED
    checked = [str(p) for p in sources() if str(p.relative_to(ROOT)) not in BY_HAND]
    if not checked:
        print(f"{ROOT}: no sources")
        return 1
    done = subprocess.run([program, "--dry-run", "--Werror", f"--style=file:{ROOT / '.clang-format'}", *checked],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr, end="")
        print(f"`{program} -i FILE...` mends this")
        return 1
    print(f"{len(checked)} files are as {program} formats them, {len(BY_HAND)} are formatted by hand")
    return 0


sys.exit(main())
