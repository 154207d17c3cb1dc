"""The two parts that are compiled; everything else about the package is in pyproject.toml."""

from __future__ import annotations

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            f"remuda.buffer.{name}",
            [f"buffer/{name}.c"],
            extra_compile_args=["-O3"],  # CFLAGS of the environment would take the place of Python's own
            optional=True,  # without a C compiler the installation goes on: numpy does the same then
        )
        for name in ("_gather", "_sum_tree")
    ]
)
