"""The module's description of the library equals the library's headers; how it is found, typed and packed."""

import dataclasses
import inspect
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

import tutti
from tutti import _declarations, _dtypes, errors

ROOT = pathlib.Path(__file__).parents[3]
HEADERS = ROOT / "include" / "tutti"
EXAMPLES = ROOT / "examples" / "python"
# Of the headers, those that declare the C interface.
NAMES = ("communicator", "collectives", "streams", "operators", "memory")


def header(name: str) -> str:
    return re.sub(r"/\*.*?\*/", "", (HEADERS / f"{name}.h").read_text(), flags=re.DOTALL)


def spaced(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def numbers(prefix: str) -> dict[str, int]:
    """The enumerators of types.h that begin with `prefix`, without it, in capitals and without underscores."""
    found = re.findall(rf"\btutti{prefix}(\w+) = (\d+)", header("types"))
    return {name.upper(): int(value) for name, value in found}


def plain(kind: type) -> dict[str, int]:
    return {member.name.replace("_", ""): member.value for member in kind}


def test_functions_are_those_of_the_headers() -> None:
    declared = {spaced(one) for name in NAMES for one in re.findall(r"TUTTI_EXPORT\s+(.*?;)", header(name), re.DOTALL)}
    ours = set(re.findall(r"(?:const char \*|tuttiResult_t )tutti[A-Z]\w+\(.*?\);", spaced(_declarations.DECLARATIONS)))
    assert ours == declared


def test_structures_are_those_of_the_headers() -> None:
    declared = spaced(re.search(r"typedef struct \{[^}]*\} tuttiConfig_t;", header("config")).group(0))
    assert declared in spaced(_declarations.DECLARATIONS)
    fields = re.findall(r"(\w+);", declared)[3:-1]
    # The module's buffers are in the host's memory, and thread blocks are those of devices.
    ours = {field.name for field in dataclasses.fields(tutti.Config)}
    assert ours | {"device", "CTAPolicy"} == set(fields)
    assert f"internal[{tutti.communicator.UNIQUE_ID_BYTES}]" in _declarations.DECLARATIONS
    version = [int(re.search(rf"TUTTI_{part} (\d+)", header("types")).group(1)) for part in ("MAJOR", "MINOR", "PATCH")]
    assert tutti.config._VERSION == version[0] * 10000 + version[1] * 100 + version[2]
    assert tutti.version() == tutti.__version__ == ".".join(map(str, version))


def test_numbers_are_those_of_the_headers() -> None:
    assert plain(tutti.Collective) == {k: v for k, v in numbers("Collective").items() if k != "MAX"}
    everything = numbers("")
    assert {name: everything[name] for name in plain(tutti.Op)} == plain(tutti.Op)
    for name, number in _dtypes._NUMBERS.items():
        assert everything[name.upper()] == number
    small = {"BFLOAT16": 9, "FLOAT8E4M3": 10, "FLOAT8E5M2": 11}
    assert {name: everything[name] for name in small} == small
    for kind in errors._CLASSES.values():
        assert everything[kind.__name__.upper()] == kind.code
    results = re.search(r"tuttiSuccess.*?tuttiResultMax", header("types"), re.DOTALL).group(0)
    assert len(re.findall(r" = \d", results)) == len(errors._CLASSES) + 2  # success, in progress


def written(function: Callable[..., object]) -> str:
    """The arguments of a method as docs/python.md writes them, which says once of all that they take dtype and stream."""
    parameters = [
        one.replace(annotation=one.empty, default=one.default if one.default is one.empty else _Source(one.default))
        for one in inspect.signature(function).parameters.values()
        if one.name not in ("self", "stream") and (one.name != "dtype" or one.default is one.empty)
    ]
    return str(inspect.Signature(parameters))


class _Source:
    """A default, as a program writes it."""

    def __init__(self, value: object) -> None:
        self.text = f"Op.{value.name}" if isinstance(value, tutti.Op) else repr(value)

    def __repr__(self) -> str:
        return self.text


def test_the_page_has_all_calls() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    tables = "\n".join(line for line in page.splitlines() if line.startswith("|"))
    told = dict(re.findall(r"`(?:Communicator\.|comm\.)?(\w+)(\([^`]*\))`", tables))
    inner = {"dtype_of", "told", "note_raised"}
    calls = inspect.getmembers(tutti.Communicator, inspect.isroutine)
    for name, function in calls:
        if not name.startswith("_") and name not in inner:
            assert told.get(name) == written(function), name
    for field in dataclasses.fields(tutti.Config):
        assert f"`{field.name}`" in page
    for kind in errors._CLASSES.values():
        assert f"`{kind.__name__}`" in tables


def import_in(variables: dict[str, str]) -> subprocess.CompletedProcess:
    environment = {name: value for name, value in os.environ.items() if name != "TUTTI_LIBRARY"}
    return subprocess.run(
        [sys.executable, "-c", "import tutti; print(tutti.version())"],
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_library_is_found(tmp_path: pathlib.Path) -> None:
    folder = pathlib.Path(os.environ["TUTTI_LIBRARY"]).parent
    (tmp_path / "tutti.pc").write_text(f"Name: tutti\nDescription: tutti\nVersion: 0.1.0\nLibs: -L{folder} -ltutti\n")
    for variables in ({"LD_LIBRARY_PATH": str(folder)}, {"PKG_CONFIG_PATH": str(tmp_path)}):
        assert import_in(variables).stdout == "0.1.0\n"
    missed = import_in({"TUTTI_LIBRARY": "/nowhere/libtutti.so"})
    assert re.search("ImportError: cannot load /nowhere/libtutti.so.*LD_LIBRARY_PATH", missed.stderr)


def test_the_library_of_the_wheel_comes_first(tmp_path: pathlib.Path) -> None:
    """A copy of the module with a library beside it stands for the wheel."""
    package = tmp_path / "tutti"
    shutil.copytree(pathlib.Path(tutti.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "lib").mkdir()
    library = package / "lib" / "libtutti.so.0"
    shutil.copy(os.environ["TUTTI_LIBRARY"], library)
    alone = {name: value for name, value in os.environ.items() if name != "TUTTI_LIBRARY"}
    ended = subprocess.run(
        [sys.executable, "-c", "import tutti; print(tutti.prefix()); print(open('/proc/self/maps').read())"],
        env=alone | {"PYTHONPATH": str(tmp_path), "LD_LIBRARY_PATH": "", "PKG_CONFIG_PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.startswith(f"{package}\n") and f" {library}\n" in ended.stdout
    assert tutti.prefix() is None


def test_types(tmp_path: pathlib.Path) -> None:
    """The package and the examples are complete for mypy, and a call that is wrong is found."""

    def mypy(*what: str) -> str:
        command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), *what]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    assert (pathlib.Path(tutti.__file__).parent / "py.typed").exists()
    assert "Success" in mypy("-p", "tutti")
    assert "Success" in mypy(*map(str, EXAMPLES.glob("*.py")))
    wrong = "import tutti\ntutti.Communicator.from_environment().barrier(3)\n"
    assert "Too many positional arguments" in mypy("-c", wrong)


@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_examples(example: str) -> None:
    ended = subprocess.run(
        [str(ROOT / "examples" / "run_ranks.sh"), "3", sys.executable, str(EXAMPLES / example)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == "" and ended.stdout.count("of 3") == 3
