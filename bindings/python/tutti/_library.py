"""Finds and loads libtutti.so, and turns its results into exceptions."""

import os
import shlex
import subprocess
from typing import Any

import cffi

from tutti import errors
from tutti._declarations import DECLARATIONS

SONAME = "libtutti.so.0"
# The wheel brings the library; a module that was installed without it looks for one.
_FOLDER = os.path.dirname(os.path.abspath(__file__))
_OWN = os.path.join(_FOLDER, "lib", SONAME)

ffi: Any = cffi.FFI()
ffi.cdef(DECLARATIONS)


def _folders_of_pkg_config() -> list[str]:
    try:
        # Not the variable libdir, which names no folder in Meson's file for a build folder (tutti-uninstalled.pc).
        command = ["pkg-config", "--libs-only-L", "tutti"]
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return [flag.removeprefix("-L") for flag in shlex.split(found.stdout)]


def _load() -> Any:
    """TUTTI_LIBRARY alone where it is set, else the wheel's; without both, where the dynamic loader looks, and where
    pkg-config says."""
    named = os.environ.get("TUTTI_LIBRARY") or (_OWN if os.path.exists(_OWN) else None)
    tried = []
    for path in [named] if named else [SONAME]:
        try:
            return ffi.dlopen(path)
        except OSError as error:
            tried.append(str(error))
    if not named:
        for folder in _folders_of_pkg_config():
            try:
                return ffi.dlopen(os.path.join(folder, SONAME))
            except OSError as error:
                tried.append(str(error))
    raise ImportError(
        f"cannot load {named or SONAME}: {'; '.join(tried)}. Install tutti where the dynamic loader or pkg-config "
        "finds it (LD_LIBRARY_PATH, PKG_CONFIG_PATH), or set TUTTI_LIBRARY to the path of libtutti.so"
    )


lib: Any = _load()


def last_error(result: int) -> errors.Error:
    """The exception of a result that is an error, with the library's text, which is the calling thread's."""
    text = ffi.string(lib.tuttiGetLastError(ffi.NULL)).decode(errors="replace")
    if not text:
        text = ffi.string(lib.tuttiGetErrorString(result)).decode()
    return errors.error_of(result, text)


def check(result: int) -> None:
    """Raises the exception of a result that is an error."""
    if result:
        raise last_error(result)


def prefix() -> str | None:
    """The folder of the wheel's library, headers and programs: ``lib``, ``include`` and ``bin`` are below it. ``None`` if
    the module was installed without them."""
    return _FOLDER if os.path.exists(_OWN) else None


def version() -> str:
    """The version of the library that is loaded, as "0.1.0"."""
    code = ffi.new("int *")
    check(lib.tuttiGetVersion(code))
    return f"{code[0] // 10000}.{code[0] // 100 % 100}.{code[0] % 100}"
