#!/bin/sh
# Writes the documentation as a site, with the reference of the headers in it.
# Usage: make_site.sh SOURCE_FOLDER PYTHON REFERENCE_FOLDER OUTPUT_FOLDER
set -eu
TUTTI_REFERENCE=reference/index.html "$2" -m sphinx -q -n -W --keep-going -b html "$1/docs" "$4"
rm -rf "${4:?}/reference"
cp -r "$3" "$4/reference"
