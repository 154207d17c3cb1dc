"""The one part that is compiled; everything else about the package is in pyproject.toml."""

from __future__ import annotations

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "remuda.buffer._sum_tree",
            ["buffer/_sum_tree.c"],
            extra_compile_args=["-O3"],  # CFLAGS of the environment would take the place of Python's own
            optional=True,  # without a C compiler the installation goes on: remuda.buffer.sum_tree takes the numpy tree
        )
    ]
)
