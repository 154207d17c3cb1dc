"""The parts that are compiled, and what is not installed; all else about the package is in pyproject.toml."""

from __future__ import annotations

from setuptools import Extension, setup
from setuptools.command.build_py import build_py


class BuildModules(build_py):
    """Takes this file for no module of remuda, though it lies in the folder of that package."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """Package, name and path of each module."""
        found: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)
        return [module for module in found if module[:2] != ("remuda", "setup")]


def compiled(module: str, *flags: str) -> Extension:
    """Return a module of remuda in C: without a compiler the installation goes on, and numpy does the same then."""
    return Extension(
        f"remuda.{module}",
        [f"{module.replace('.', '/')}.c"],
        extra_compile_args=["-O3", *flags],  # CFLAGS of the environment would take the place of Python's own
        optional=True,
    )


setup(
    cmdclass={"build_py": BuildModules},
    ext_modules=[
        compiled("buffer._gather"),
        compiled("buffer._sum_tree"),
        compiled("policy.algorithms.muzero.search._tree", "-ffp-contract=off"),  # numpy rounds products and sums apart
    ],
)
