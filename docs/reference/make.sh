#!/bin/sh
# Writes the HTML reference of include/tutti. A function without a comment, or a comment that names what does not
# exist, is an error.
# Usage: make.sh SOURCE_FOLDER DOXYGEN VERSION OUTPUT_FOLDER, which is made anew
set -eu
rm -rf "${4:?}"
mkdir -p "$4"
output=$(cd "$4" && pwd)
cd "$1"
(cat docs/reference/Doxyfile && printf 'PROJECT_NUMBER = %s\nOUTPUT_DIRECTORY = "%s"\nHTML_OUTPUT = .\n' "$3" "$output") |
  "$2" -
