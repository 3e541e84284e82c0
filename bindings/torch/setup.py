"""Builds the extension against the installed torch and the tutti that pkg-config finds."""

import pathlib
import subprocess
import sys

import setuptools
import torch.utils.cpp_extension as cpp_extension


def pkg_config(*what: str) -> list[str]:
    try:
        asked = subprocess.run(["pkg-config", *what, "tutti"], capture_output=True, text=True)
    except FileNotFoundError:
        sys.exit("tutti_torch: pkg-config is missing, which says where tutti is installed")
    if asked.returncode != 0:
        sys.exit(
            f"tutti_torch: pkg-config does not find tutti:\n{asked.stderr}"
            "If it is installed in PREFIX, set PKG_CONFIG_PATH to the folder of its tutti.pc: PREFIX/lib/pkgconfig, or "
            "PREFIX/lib/x86_64-linux-gnu/pkgconfig on Debian."
        )
    return asked.stdout.split()


folder = pathlib.Path(__file__).parent
library_folders = [flag.removeprefix("-L") for flag in pkg_config("--libs-only-L", "--keep-system-libs")]

setuptools.setup(
    ext_modules=[
        cpp_extension.CppExtension(
            "tutti_torch._C",
            sorted(str(source.relative_to(folder)) for source in folder.glob("src/*.cc")),
            extra_compile_args=["-std=c++20", "-O2", "-g0", *pkg_config("--cflags")],
            # A compiler that links its C++ library into the extension would offer it to libtutti, too, which has another.
            extra_link_args=[
                "-Wl,--exclude-libs,ALL",
                *pkg_config("--libs"),
                *(f"-Wl,-rpath,{path}" for path in library_folders),
            ],
        )
    ],
    cmdclass={"build_ext": cpp_extension.BuildExtension},
)
