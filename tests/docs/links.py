#!/usr/bin/env python3
"""Checks the links of all pages: each relative one names a file that is there, and each anchor a heading of that page.
The site's own check (docs site) sees only what is in docs, and needs Sphinx.

usage: links.py SOURCE
"""

import pathlib
import re
import subprocess
import sys

FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\s*\[[^\]]+\]:\s+(\S+)", re.MULTILINE)


def pages(source):
    """Tracked pages and new ones that git does not ignore; without git, what lies in the folders."""
    listed = subprocess.run(["git", "-C", str(source), "ls-files", "-co", "--exclude-standard", "*.md"],
                            capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        found = [source / name for name in listed.stdout.splitlines()]
    else:
        found = [*source.glob("*.md"), *(p for top in ("docs", "bindings", "examples", "tests", "tools", "perf")
                                         for p in (source / top).rglob("*.md"))]
    return sorted(p for p in found if p.is_file())


def blank(match):
    return "\n" * match[0].count("\n")


def anchors(page):
    """Those of the headings, as GitHub makes them, and those that the page names itself."""
    text = FENCE.sub(blank, page.read_text(encoding="utf-8"))
    found = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = base = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = 0
        while slug in found:
            number += 1
            slug = f"{base}-{number}"
        found.add(slug)
    return found


def main():
    source = pathlib.Path(sys.argv[1]).resolve()
    known = {}
    links = 0
    wrong = []
    for page in pages(source):
        text = FENCE.sub(blank, page.read_text(encoding="utf-8"))
        text = re.sub(r"`[^`\n]*`", lambda m: "x" * len(m[0]), text)
        for match in LINK.finditer(text):
            target = match[1] or match[2]
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            links += 1
            name, _, anchor = target.partition("#")
            where = f"{page.relative_to(source)}:{text.count(chr(10), 0, match.start()) + 1}: {target}"
            other = (page.parent / name).resolve() if name else page
            if not other.exists():
                wrong.append(f"{where}: no such file")
            elif anchor and other.suffix == ".md":
                if other not in known:
                    known[other] = anchors(other)
                if anchor not in known[other]:
                    wrong.append(f"{where}: no such heading")
    print("\n".join(wrong + [f"{links} links, {len(wrong)} that lead nowhere"]))
    return 1 if wrong or not links else 0


sys.exit(main())
