#!/usr/bin/env python3
"""No object of the library has a static variable of a function that is initialised when the function is first reached.

The compiler guards such a variable by a lock. A child that is forked while another thread holds it waits without end
for that thread, which it does not have. Use src/base/first_use.h instead. This reads the compiled objects, because
sources do not show the compiler's output.

usage: guards.py BUILD_FOLDER
"""
import pathlib
import subprocess
import sys

FOLDERS = ['src']


def objects(build):
    for folder in FOLDERS:
        yield from sorted((build / folder).glob('**/*.p/*.o'))


def guarded(paths):
    """The guarded variables, as (object, variable)."""
    found = []
    names = subprocess.run(['nm', '-A', '-C', *map(str, paths)], capture_output=True, text=True, check=True).stdout
    for line in names.splitlines():
        if 'guard variable for ' in line:
            found.append((line.split(':', 1)[0], line.split('guard variable for ', 1)[1]))
    return found


def main():
    build = pathlib.Path(sys.argv[1])
    paths = list(objects(build))
    if not paths:
        sys.exit(f'guards.py: there are no objects of the library in {build}. Build it first')
    found = guarded(paths)
    for path, variable in found:
        print(f'{path}: {variable} is initialised when it is reached. Use FirstUse (src/base/first_use.h)')
    sys.exit(1 if found else 0)


if __name__ == '__main__':
    main()
