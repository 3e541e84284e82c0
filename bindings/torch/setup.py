"""Builds the extension against the installed torch, and the tutti of the same Python (its wheel) or, without that, the one
that pkg-config finds."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import setuptools
import torch
import torch.utils.cpp_extension as cpp_extension


def pkg_config_of_wheel() -> pathlib.Path | None:
    """The folder of tutti.pc in the wheel tutti, if that is installed beside torch."""
    found = importlib.util.find_spec("tutti")
    for folder in found.submodule_search_locations or [] if found else []:
        packages = pathlib.Path(folder, "lib/pkgconfig")
        if packages.is_dir():
            return packages
    return None


wheel = pkg_config_of_wheel()


def pkg_config(*what: str) -> list[str]:
    variables = {**os.environ, "PKG_CONFIG_PATH": str(wheel)} if wheel else None
    try:
        asked = subprocess.run(["pkg-config", *what, "tutti"], capture_output=True, text=True, env=variables)
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
if wheel:
    # Both wheels are installed side by side, wherever that is.
    run_path = ["$ORIGIN/../tutti/lib"]
else:
    # Not by way of the folder of tutti.pc, which need not be there when the extension runs.
    folders = pkg_config("--libs-only-L", "--keep-system-libs")
    run_path = [os.path.normpath(flag.removeprefix("-L")) for flag in folders]
# The extension is bound to the C++ interface of this torch. tutti's wheel is not named here: the name is another
# project's on the Python index, and pip would install that one.
torch_series = ".".join(torch.__version__.split(".")[:2])

setuptools.setup(
    install_requires=[f"torch=={torch_series}.*"],
    ext_modules=[
        cpp_extension.CppExtension(
            "tutti_torch._C",
            sorted(str(source.relative_to(folder)) for source in folder.glob("src/*.cc")),
            extra_compile_args=["-std=c++20", "-O2", "-g0", *pkg_config("--cflags")],
            # A compiler that links its C++ library into the extension would offer it to libtutti, too, which has another.
            extra_link_args=[
                "-Wl,--exclude-libs,ALL",
                *pkg_config("--libs"),
                *(f"-Wl,-rpath,{path}" for path in run_path),
            ],
        )
    ],
    cmdclass={"build_ext": cpp_extension.BuildExtension},
)
