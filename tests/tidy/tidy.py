#!/usr/bin/env python3
"""Checks the style of the sources: what may include what, sizes of files and functions, words that
announce unfinished work or make a sentence hard to read. Usage: tidy.py SOURCE_ROOT. Prints each finding; exit status 1 if there is any."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(sys.argv[1]).resolve()
# Which folders each folder may include, besides itself.
ALLOWED = {
    "os": set(),
    "base": {"os"},
    "observe": {"base", "os"},
    "net": {"base", "os"},
    "control": {"base", "os", "net"},
    "join": {"base", "os", "net", "control"},
    "schedule": {"base", "os"},
    "algorithms": {"schedule", "base", "os"},
    "reduction": {"base", "os"},
    "memory": {"base", "os"},
    "transport": {"base", "os", "memory", "net", "join"},
    "topology": {"schedule", "algorithms", "base", "os"},
    "selection": {"topology", "schedule", "algorithms", "base", "os"},
    "executor": {"schedule", "transport", "reduction", "observe", "base", "os"},
    "monitor": {"base", "os", "control", "executor", "net", "observe"},
    "calls": {"base", "os", "executor", "memory", "reduction", "schedule"},
    "streams": {"base", "os", "executor"},
    "device": {"base", "os", "calls", "executor", "join", "memory", "net", "reduction", "transport"},
    "epoch": {"algorithms", "base", "control", "executor", "join", "memory", "net", "observe", "os",
              "selection", "topology", "transport"},
    "communicator": {"algorithms", "base", "calls", "control", "device", "epoch", "executor", "join", "memory",
                     "monitor", "net", "observe", "os", "selection", "streams", "topology", "transport"},
    "api": {"base", "os", "calls", "communicator", "device", "memory", "streams"},
}
# Sources that are not a part of a header with their name, and the header to which they belong.
PART_OF = {
    "api/collectives.cc": "tutti/tutti.h",
    "api/communicators.cc": "tutti/tutti.h",
    "api/going_on.cc": "tutti/tutti.h",
    "api/operators.cc": "tutti/tutti.h",
    "api/registered_range.cc": "tutti/tutti.h",
    "api/split.cc": "tutti/tutti.h",
    "api/streams.cc": "tutti/tutti.h",
    "base/fmt.cc": "fmt/format.h",
    "reduction/complexes.cc": "reduction/targets.h",
    "reduction/float8s.cc": "reduction/targets.h",
    "reduction/floats.cc": "reduction/targets.h",
    "reduction/halves.cc": "reduction/targets.h",
    "reduction/integers.cc": "reduction/targets.h",
    "reduction/logic.cc": "reduction/targets.h",
    "transport/registered.cc": "transport/registry.h",
    "transport/verbs/absent.cc": "transport/verbs/rdma_context.h",
}
# The header that each use needs. A precompiled header hides it from the compiler if a source includes it nowhere.
NEEDS = {
    "fmt/core.h": r"fmt::format\b",
    "algorithm": r"std::(?:sort|stable_sort|find|find_if|any_of|all_of|none_of|count_if|fill|fill_n|copy|copy_n|min|max|clamp"
                 r"|min_element|max_element|reverse|rotate|unique|lower_bound|upper_bound|equal|transform|replace)\b",
    "array": r"std::array\b",
    "atomic": r"std::(?:atomic|memory_order)\w*",
    "bit": r"std::(?:bit_\w+|byteswap|countl_\w+|countr_\w+|endian|has_single_bit|popcount|rot[lr])\b",
    "chrono": r"std::chrono\b",
    "condition_variable": r"std::condition_variable\b",
    "cstring": r"std::(?:mem(?:cpy|set|cmp|move|chr)|str(?:len|cmp|ncmp|error|chr|str))\b",
    "deque": r"std::deque\b",
    "filesystem": r"std::filesystem\b",
    "fstream": r"std::[io]?fstream\b",
    "functional": r"std::(?:function|hash|less|greater|plus|multiplies|reference_wrapper)\b",
    "map": r"std::(?:multi)?map\b",
    "memory": r"std::(?:unique_ptr|shared_ptr|weak_ptr|make_unique|make_shared|enable_shared_from_this|addressof)\b",
    "mutex": r"std::(?:mutex|lock_guard|unique_lock|scoped_lock|once_flag|call_once)\b",
    "numeric": r"std::(?:accumulate|iota|gcd|lcm|partial_sum|inclusive_scan|exclusive_scan)\b",
    "optional": r"std::(?:optional|nullopt|make_optional)\b",
    "random": r"std::(?:mt19937\w*|uniform_\w+_distribution|minstd_rand|random_device)\b",
    "set": r"std::(?:multi)?set\b",
    "span": r"std::(?:span|as_bytes|as_writable_bytes)\b",
    "sstream": r"std::[io]?stringstream\b",
    "string": r"std::(?:string|to_string|stoi|stol|stoul|stoll|stoull|stod|getline)\b",
    "thread": r"std::(?:thread|this_thread|jthread)\b",
    "unordered_map": r"std::unordered_(?:multi)?map\b",
    "variant": r"std::(?:variant|visit|monostate|holds_alternative|get_if)\b",
    "vector": r"std::vector\b",
}
NEEDS = {header: re.compile(r"\b" + use) for header, use in NEEDS.items()}
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|not implemented|place" + "holder", re.IGNORECASE)
# A header may explain at its top why a file is longer than the limit.
REASON = re.compile(r"Long because: \S")
CODE = {".cc", ".cu", ".h", ".c", ".hpp"}
TEXT = CODE | {".py", ".sh", ".build", ".md", ".txt"}

WORDS = pathlib.Path(__file__).with_name("words.txt")

findings = []
# Pairs of folders: the first includes something of the second.
includes_made = set()


def report(path, line, what):
    findings.append(f"{path.relative_to(ROOT)}:{line}: {what}")


def sources():
    """Tracked files and new files that git does not ignore; without git, what lies in the folders."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"],
                            capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        names = [ROOT / name for name in listed.stdout.splitlines()]
    else:
        names = [p for top in ("src", "include", "tests", "tools", "perf", "examples", "docs")
                 for p in (ROOT / top).rglob("*")]
    return [p for p in names if p.is_file()]


def check_text(path, lines):
    for number, line in enumerate(lines, 1):
        if "\t" in line and path.name != "rules":  # a makefile
            report(path, number, "tab")
        if line != line.rstrip():
            report(path, number, "space at the end of the line")
        if UNFINISHED.search(line) and path.name != "tidy.py":
            report(path, number, "a word that announces unfinished work")


def check_includes(path, lines):
    folder = path.relative_to(ROOT / "src").parts[0]
    allowed = ALLOWED.get(folder)
    if allowed is None:
        report(path, 1, f"folder src/{folder} has no include rule in tests/tidy/tidy.py")
        return
    for number, line in enumerate(lines, 1):
        included = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not included:
            continue
        target = included.group(1)
        if target.startswith("tutti/"):
            # The table of settings names their fields of tuttiConfig_t.
            if folder != "api" and (path.name, target) != ("variables.h", "tutti/config.h"):
                report(path, number, "only src/api includes the public header")
            continue
        if target.startswith("hwy/") and folder == "reduction":
            continue
        if not (ROOT / "src" / target).is_file():
            report(path, number, f'"{target}" is not relative to src/')
            continue
        other = target.split("/")[0]
        includes_made.add((folder, other))
        if other != folder and other not in allowed:
            report(path, number, f"src/{folder} may not include src/{other}")


def check_permissions():
    """Every permission of ALLOWED is used: an unused one would admit an include that was never decided on. All
    folders may include src/os, so it is left out."""
    for folder, allowed in ALLOWED.items():
        for other in sorted(allowed - {"os"}):
            if (folder, other) not in includes_made:
                report(ROOT / "tests/tidy/tidy.py", 1, f"src/{folder} may include src/{other}, but does not")


def included_by(path):
    return re.findall(r'^\s*#\s*include\s+["<]([^">]+)[">]', path.read_text(), re.MULTILINE)


def check_headers(files):
    """No header includes itself by way of others, and each source belongs to a header: NAME.cc and the parts of it,
    NAME_part.cc, include NAME.h or NAME_parts.h; what else there is stands in PART_OF. Programs need none."""
    src = ROOT / "src"
    names = {str(p.relative_to(src)): p for p in files if src in p.parents}
    headers = {name: [n for n in included_by(p) if n in names] for name, p in names.items() if p.suffix == ".h"}
    done = set()

    def visit(name, path):
        if name in path:
            report(names[name], 1, "headers include each other: " + " ".join(path[path.index(name):] + [name]))
        elif name not in done:
            for other in headers.get(name, []):
                visit(other, path + [name])
            done.add(name)

    def reached(included, through):
        for name in included:
            if name not in through:
                through.add(name)
                reached(included_by(names[name]) if name in names else [], through)
        return through

    for name in headers:
        visit(name, [])
    for name, path in names.items():
        if path.suffix != ".cc" or re.search(r"^int main\(", path.read_text(), re.MULTILINE):
            continue
        stem = name.removesuffix(".cc")
        included = included_by(path)
        if name in PART_OF:
            belongs = PART_OF[name] in reached(included, set())
        else:
            wholes = [re.sub(r"(_parts)?\.h$", "", header) for header in included]
            belongs = any(stem == whole or stem.startswith(whole + "_") for whole in wholes)
        if not belongs:
            report(path, 1, f"includes no header that it is a part of ({PART_OF.get(name, stem + '.h')})")


def check_needs(files):
    """Each file includes what it uses of NEEDS, itself or by way of other files of the project."""
    texts = {path: path.read_text() for path in files if path.suffix in CODE}
    folders = [ROOT / name for name in ("", "src", "tests", "include", "tools", "perf", "bindings/mpi/src")]
    reached = {}

    def reach(path):
        if path not in reached:
            found = reached[path] = set()
            for name in re.findall(r'^\s*#\s*include\s+["<]([^">]+)[">]', texts[path], re.MULTILINE):
                beside = [(folder / name).resolve() for folder in [path.parent, *folders]]
                other = next((other for other in beside if other in texts), None)
                found |= {name} if other is None else reach(other)
        return reached[path]

    for path, text in texts.items():
        if path.suffix not in {".cc", ".h"} or path.relative_to(ROOT).parts[:2] == ("bindings", "torch"):
            continue
        code = re.sub(r'//[^\n]*|"(?:\\.|[^"\\\n])*"', "", text)
        for header, use in NEEDS.items():
            used = use.search(code)
            if used and header not in reach(path):
                report(path, text.count("\n", 0, text.find(used[0])) + 1, f"{used[0]} needs <{header}>")


# Uses that only one file or folder may have, and in which folders. Clang understands only the locks of os/mutex.h
# (thread_safety.py).
BY_ONE_FILE = [
    ("src/base/config.cc", ("src", "include"), r"\b(secure_)?getenv\s*\(", "getenv outside src/base/config.cc"),
    ("src/os/mutex.h", ("src",), r"\bstd::(\w*mutex|\w+_lock|lock_guard|condition_variable\w*)\b",
     "a lock that is not one of os/mutex.h"),
    ("src/os/look_again.h", ("src",), r"\b(sleep_for|sleep_until|usleep|nanosleep)\s*\(",
     "a sleep outside src/os/look_again.h"),
    ("src/os/kernel_files.h", ("src",), r"\bistreambuf_iterator\b", "an iterator that throws if the file cannot be read"),
    # Calls that the simulated world must see (docs/architecture/world.md); launchers are queried before it begins.
    ("src/join/launch", ("src/net", "src/control", "src/join"),
     r"(?<![\w:>])::(poll|send|recv|socket|bind|listen|connect|accept4?|[gs]etsockopt|getsockname|getpeername|shutdown"
     r"|getpid|gethostname|getrandom|getifaddrs|eventfd|pthread_create|pthread_join)\s*\(",
     "a call of the kernel that does not go through os::kernel()"),
]


def check_use(path, lines):
    for owner, folders, use, finding in BY_ONE_FILE:
        inside = any(ROOT / folder in path.parents for folder in folders)
        if not inside or path == ROOT / owner or ROOT / owner in path.parents:
            continue
        for number, line in enumerate(lines, 1):
            if re.search(use, line):
                report(path, number, finding)


def strip(text):
    """Blanks comments, literals and directives, keeping line breaks, so that braces can be counted."""
    pattern = re.compile(r'(?m:^[ \t]*#(?:[^\n\\]|\\.)*)|//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)

    def blank(match):
        found = match.group(0)
        # Digit separators are not character literals.
        if found.startswith("'") and match.start() > 0 and text[match.start() - 1].isalnum():
            return found.replace("'", " ")
        return re.sub(r"[^\n]", " ", found)

    return pattern.sub(blank, text)


def check_functions(path, text):
    """A function is a block that follows a closing parenthesis (and what may stand behind it)."""
    opened = []
    line = 1
    since = 0  # where the text before the next brace begins
    clean = strip(text)
    for at, char in enumerate(clean):
        if char == "\n":
            line += 1
        elif char == "{":
            head = without_template(clean[since:at].strip())
            is_scope = re.match(r"(inline\s+)?namespace\b|(typedef\s+)?(struct|class|union|enum)\b|extern\b", head)
            is_function = bool(re.search(r"\)[\w\s&:,()<>*.\->{}]*$", head)) and not is_scope
            opened.append((line, is_function and not any(f for _, f in opened)))
            since = at + 1
        elif char == "}":
            if not opened:
                return
            start, function = opened.pop()
            if function and line - start + 1 > MAX_FUNCTION_LINES:
                report(path, start, f"a function of {line - start + 1} lines; at most {MAX_FUNCTION_LINES}")
            since = at + 1
        elif char == ";":
            since = at + 1


def without_template(head):
    """What is declared, without the parameters of its template."""
    while match := re.match(r"template\s*<", head):
        depth = 1
        end = match.end()
        while depth and end < len(head):
            depth += {"<": 1, ">": -1}.get(head[end], 0)
            end += 1
        head = head[end:].strip()
    return head


def read_words():
    """The contents of words.txt: globs by the kind of text ("", "strings ", "comments "), and (pattern, advice)."""
    globs, refused = {kind: [] for kind in TEXTS_OF_KIND}, []
    for number, line in enumerate(WORDS.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        kind, _, glob = line.rpartition("in ")
        pattern, arrow, advice = line.partition(" => ")
        if arrow:
            refused.append((re.compile(rf"(?<!\w)(?:{pattern})\b".replace(" ", r"[\s*/]+"), re.IGNORECASE), advice))
        elif kind in globs:
            globs[kind].append(glob)
        else:
            sys.exit(f"{WORDS}:{number}: neither \"in GLOB\" nor \"PATTERN => ADVICE\"")
    return globs, refused


def only_literals(text):
    """The text with all but its string literals blanked; adjacent literals follow each other without quotes."""
    text = re.sub(r'(?m)^[ \t]*#[ \t]*include.*$', lambda match: " " * len(match.group(0)), text)
    kept = [" " if char != "\n" else char for char in text]
    for match in re.finditer(r'//[^\n]*|R"\((.*?)\)"|"((?:\\.|[^"\\\n])*)"', text, re.DOTALL):
        group = 1 if match.group(1) is not None else 2
        if match.group(group) is not None:
            kept[match.start(group):match.end(group)] = text[match.start(group):match.end(group)].replace("\\n", "  ")
    return "".join(kept)


def only_comments(text):
    """The comments of a text, each on its line. A phrase cannot span two comments with code between them."""
    kept, end = [], 0
    for match in re.finditer(r'//[^\n]*|/\*.*?\*/|R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|\'"\'', text, re.DOTALL):
        if match.group(0).startswith("/"):
            code = text[end:match.start()]
            kept += ["\0" + "\n" * code.count("\n") if code.strip() else code, match.group(0)]
            end = match.end()
    return "".join(kept)


def without_none(text):
    """A script without Python's operator "is None", which is not prose."""
    return text.replace("is None", "is     ")


TEXTS_OF_KIND = {"": lambda text: text, "scripts ": without_none, "strings ": only_literals, "comments ": only_comments}


def check_words(files):
    """No text that people read has a word or phrase that words.txt refuses."""
    globs, refused = read_words()
    for kind, text_of in TEXTS_OF_KIND.items():
        paths = {path for glob in globs[kind] for path in ROOT.glob(glob)}
        for path in files:
            if path not in paths:
                continue
            text = text_of(path.read_text())
            for pattern, advice in refused:
                for match in pattern.finditer(text):
                    found = " ".join(match.group(0).split())
                    report(path, text.count("\n", 0, match.start()) + 1, f'"{found}": write: {advice}')


def check_built(path, build_files):
    """Every source file is named in the build file of its folder or of one above."""
    for build, names in build_files.items():
        if build.parent in path.parents:
            relative = str(path.relative_to(build.parent))
            if relative in names:
                return
    report(path, 1, "is in no meson.build")


def quoted_names(build):
    text = build.read_text()
    names = set(re.findall(r"'([^'\n]+)'", text))
    # executable(..., 'folder/' + name + '_test.cc'): a loop over names.
    for folder, suffix in re.findall(r"(?:'([^'\n]+/)' \+ \w+ )?\+\s*'([^'\n]+\.cc?)'", text):
        names |= {folder + name + suffix for name in names}
    return names


def main():
    files = sources()
    build_files = {p: quoted_names(p) for p in files if p.name == "meson.build"}
    for path in files:
        if path.suffix not in TEXT and not path.read_bytes()[:2] == b"#!":
            continue
        text = path.read_text()
        lines = text.split("\n")
        if path.suffix != ".md" and "LICENSE" not in path.name:
            check_text(path, lines)
        if path.suffix not in CODE:
            continue
        top = path.relative_to(ROOT).parts[0]
        long_allowed = any(REASON.search(line) for line in lines[:20])
        if len(lines) - 1 > MAX_FILE_LINES and not long_allowed:
            report(path, 1, f"{len(lines) - 1} lines; at most {MAX_FILE_LINES}")
        if not long_allowed:
            check_functions(path, text)
        if top == "src":
            check_includes(path, lines)
        check_use(path, lines)
        by_torch = path.parent.match("tests/bindings/torch")  # like the bindings themselves
        if path.suffix in (".cc", ".c") and top in ("src", "tests", "perf", "tools") and not by_torch:
            check_built(path, build_files)
    check_permissions()
    check_headers(files)
    check_needs(files)
    check_words(files)
    print("\n".join(findings))
    print(f"{len(files)} files, {len(findings)} findings")
    return 1 if findings else 0


sys.exit(main())
