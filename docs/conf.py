"""The documentation as a site: `python3 -m sphinx -b html docs FOLDER`, or with the reference of the headers in it, of
which TUTTI_REFERENCE is the address there: `ninja -C build docs/reference/site`."""

import os
import pathlib
import re

root = pathlib.Path(__file__).parent.parent
project = "tutti"
author = "the authors of tutti"
version = re.search(r"version: '([^']+)'", (root / "meson.build").read_text(encoding="utf-8")).group(1)
release = version
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = []
nitpicky = True
myst_heading_anchors = 3
# Titles are the pages' own.
suppress_warnings = ["myst.header"]
html_theme = "furo"
html_title = f"tutti {version}"
html_copy_source = False
html_show_sphinx = False
highlight_language = "none"
reference = os.environ.get("TUTTI_REFERENCE", "")


def to_repository(app, docname, source):
    """Pages link to files beside docs, which a site does not have: there they are text."""
    outside = r"\.\./" * (docname.count("/") + 1)
    source[0] = re.sub(rf"\[([^\]]+)\]\({outside}[^)]*\)", r"\1", source[0])
    if docname == "index" and reference:
        source[0] = source[0].replace("New here:", f'All functions: <a href="{reference}">the reference</a>. New here:')


def setup(app):
    app.connect("source-read", to_repository)
