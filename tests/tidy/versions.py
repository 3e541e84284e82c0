#!/usr/bin/env python3
"""Every file that states the version states that of meson.build. Usage: versions.py SOURCE. Prints each file that
differs; exit status 1 if any does."""

import pathlib
import re
import sys

source = pathlib.Path(sys.argv[1])
version = re.search(r"^  version: '(\d+\.\d+\.\d+)'", (source / "meson.build").read_text(), re.MULTILINE)[1]
soversion = re.search(r"^tutti_soversion = '(\d+)'", (source / "src/api/meson.build").read_text(), re.MULTILINE)[1]
major, minor, patch = version.split(".")
# File, pattern of the stated version, its required value.
STATED = [
    ("include/tutti/types.h", r"^#define TUTTI_MAJOR (\d+)$", major),
    ("include/tutti/types.h", r"^#define TUTTI_MINOR (\d+)$", minor),
    ("include/tutti/types.h", r"^#define TUTTI_PATCH (\d+)$", patch),
    ("bindings/python/pyproject.toml", r'^version = "([^"]+)"', version),
    ("bindings/python/tutti/_library.py", r'^SONAME = "libtutti\.so\.(\d+)"', soversion),
    ("bindings/torch/pyproject.toml", r'^version = "([^"]+)"', version),
    ("debian/changelog", r"^tutti \(([^)]+)\)", version),
    ("debian/control", r"^Package: libtutti(\d+)$", soversion),
    ("CHANGELOG.md", r"^## (\S+)", version),
    ("CITATION.cff", r"^version: (\S+)", version),
]
differ = 0
for name, pattern, wanted in STATED:
    found = re.search(pattern, (source / name).read_text(), re.MULTILINE)
    if not found or found[1] != wanted:
        print(f"{name}: says {found[1] if found else 'nothing'}, meson.build {wanted}")
        differ += 1
sys.exit(1 if differ else 0)
