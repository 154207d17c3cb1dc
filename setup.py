"""The packages, and the parts that are compiled; all else about the distribution is in pyproject.toml."""

from __future__ import annotations

from setuptools import Extension, find_packages, setup
from setuptools.command.build_py import build_py


class BuildModules(build_py):
    """Leaves this file out of the package remuda, although it lies in the package's folder."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """Package, name and path of each module."""
        found: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)
        return [module for module in found if module[:2] != ("remuda", "setup")]


OPTIMIZED = ["-O3"]  # CFLAGS of the environment would take the place of Python's own
SEARCH = "policy/algorithms/muzero/search"

setup(
    packages=["remuda", *(f"remuda.{name}" for name in find_packages(exclude=("benchmarks*", "tests*")))],
    cmdclass={"build_py": BuildModules},
    ext_modules=[
        # optional: without a C compiler the installation continues, and numpy does the same work
        *(
            Extension(f"remuda.buffer.{name}", [f"buffer/{name}.c"], extra_compile_args=OPTIMIZED, optional=True)
            for name in ("_gather", "_sum_tree")
        ),
        Extension(
            f"remuda.{SEARCH.replace('/', '.')}._tree",
            [f"{SEARCH}/{name}.c" for name in ("_tree", "_walk", "_puct", "_gumbel")],
            depends=[f"{SEARCH}/{name}.h" for name in ("_nodes", "_walk", "_puct", "_gumbel")],
            extra_compile_args=[*OPTIMIZED, "-ffp-contract=off"],  # numpy rounds products and sums separately
            optional=True,
        ),
    ],
)
