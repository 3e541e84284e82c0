#!/usr/bin/env python3
"""Doxygen's filter for include/tutti: prints a header with its plain comments turned into Doxygen's.

A comment belongs to what follows it, or to what is before it in its line; the first one is the file's. A heading of
dashes, "---- Streams ----", begins a group of members, with the text behind it. Comments are plain text: what Doxygen
would take for markup is escaped, `code` is code, and a name of the C API links to it, so that Doxygen refuses a name
that there is not."""

import re
import sys

C_COMMENT = re.compile(r"/\*(.*?)\*/", re.S)
HEADING = re.compile(r"^\s*---- (.*?) -+\s*")
NAME = re.compile(r"\b(tutti[A-Z]\w*)\b(?=(\(?))")
ENUMERATOR = re.compile(r"(?m)^(  tutti[A-Z]\w* = (\w+),?)$")


def escaped(text: str) -> str:
    """Plain text as Doxygen has to read it to show the same."""
    text = re.sub(r'([\\@&$#<>%"|])', r"\\\1", text)
    text = re.sub(r"(?m)^(\s*)-(?=\s)", r"\1\\-", text)
    text = re.sub(r"`([^`]*)`", r"<code>\1</code>", text)
    # What follows a name in parentheses is no list of types.
    return NAME.sub(lambda name: f"::{name[1]}{'&zwnj;' if name[2] else ''}", text)


def block(text: str, place: str, state: dict) -> str:
    """One comment; place is "file", "before" (what it belongs to) or "behind"."""
    heading = HEADING.match(text)
    # The stars at the beginnings of lines are Doxygen's, too.
    if place == "file":
        return f"/** @file\n *{escaped(text)}*/"
    if heading:
        closed = "/** @} */ " if state["open"] else ""
        state["open"] = True
        return f"{closed}/** @name {escaped(heading[1])}\n *{escaped(text[heading.end():])}\n * @{{ */"
    return f"/**{'<' if place == 'behind' else ''}{escaped(text)}*/"


def c_header(source: str) -> str:
    """A header of the C API."""
    out, at, state = [], 0, {"open": False}
    for match in C_COMMENT.finditer(source):
        line = source[source.rfind("\n", 0, match.start()) + 1 : match.start()]
        place = "behind" if line.strip() else "before" if out else "file"
        between = source[at : match.start()]
        # The end of what is extern "C" ends the last group.
        if line.startswith("#endif"):
            out.append(between + match[0])
        else:
            out.append(between + block(match[1], place, state))
        at = match.end()
    # What an enumeration names without a comment is shown with its number.
    rest = ENUMERATOR.sub(r"\1 /**< \2 */", "".join(out) + source[at:])
    if state["open"]:
        end = rest.rindex("#ifdef __cplusplus")
        rest = rest[:end] + "/** @} */\n" + rest[end:]
    return rest


def cpp_header(source: str) -> str:
    """A header of the C++ layer."""
    out, first = [], True
    for line in source.split("\n"):
        match = re.match(r'^((?:[^"/]|"[^"]*"|/(?!/))*)//(.*)$', line)
        if not match or line.startswith("#endif") or "NOLINT" in match[2]:
            out.append(line)
        elif match[1].strip():
            out.append(f"{match[1]}///<{escaped(match[2])}")
        else:
            out.append(f"{match[1]}///{' @file' + chr(10) + '///' if first else ''}{escaped(match[2])}")
        first = False
    return "\n".join(out)


def main() -> None:
    path = sys.argv[1]
    with open(path, encoding="utf-8") as file:
        source = file.read()
    print(cpp_header(source) if path.endswith(".hpp") else c_header(source), end="")


if __name__ == "__main__":
    main()
