"""Allowed code in submitted configs: any code for the coordinator's own user, else code in allowed folders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from remuda.config.current import evaluated
from remuda.config.schema import ExperimentConfig

OWN = "operator"
"""The key of the user who started the coordinator: the holder can run code as this user anyway."""
PETTINGZOO = "pettingzoo."
"""Modules of this package are environments, as gymnasium's ids are."""


@dataclass(frozen=True)
class AllowedCode:
    """Folders of `remuda coordinator --allow-code`."""

    folders: tuple[Path, ...] = ()

    def refusal(self, config: ExperimentConfig, who: str) -> str | None:
        """Reason why the holder of the key `who` may not submit this config; None if allowed.

        `module:name` must be a file in the config's `source_dir`. This folder lies in an allowed folder, also after
        links are followed: installed modules could do anything as well (`os:system`). Initial weights must lie in an
        allowed folder, too.
        """
        if who == OWN:
            return None
        for setting, reference in _references(config):
            if not self._holds(config.source_dir, reference.partition(":")[0]):
                return f"{setting} = {reference!r} (folder {config.source_dir}) {self._advice(who)}"
        learner = config.learner
        files = {
            "learner.initialize_from": learner.initialize_from,
            "learner.initialize_from_demonstrations": learner.initialize_from_demonstrations,
            "buffer.demonstrations": config.buffer.demonstrations,
            "collector.dataset": config.collector.dataset,
        }
        for setting, file in files.items():
            if file is not None and not self._is_inside(Path(file)):
                return f"{setting} = {file!r} {self._advice(who)}"
        return None

    def _advice(self, who: str) -> str:
        allowed = ", ".join(map(str, self.folders)) or "none"
        return (
            f"does not lie in a folder from which the key {who} may name code and files (allowed: {allowed}); whoever "
            "runs the coordinator can start it with --allow-code FOLDER"
        )

    def _holds(self, source_dir: str | None, module: str) -> bool:
        """True if this module is found in `source_dir` only, and so are all packages around the module."""
        if source_dir is None:
            return False
        place, *parents = Path(source_dir), *module.split(".")
        for number, part in enumerate(parents):
            folder, file = place / part, place / f"{part}.py"
            is_last = number == len(parents) - 1
            if folder.is_dir() and (is_last or (folder / "__init__.py").is_file()):
                file = folder / "__init__.py"
            elif not is_last:
                return False
            if not part.isidentifier() or not file.is_file() or not self._is_inside(file):
                return False
            place = folder
        return bool(parents)

    def _is_inside(self, path: Path) -> bool:
        resolved = path.resolve()
        return path.is_absolute() and any(folder.resolve() in resolved.parents for folder in self.folders)


def _references(config: ExperimentConfig) -> Iterator[tuple[str, str]]:
    """Return the settings that name code, with the names."""
    named = [*config.user_code.items()]
    for setting, env in (("env", config.env), ("evaluator.env", evaluated(config).env)):
        id = env.id
        if env.kind == "pettingzoo" and id is not None and not id.startswith(PETTINGZOO):
            id = f"{id}:"  # the name of a module
        named += [(f"{setting}.{key}", name) for key, name in (("make", env.make), ("id", id)) if name is not None]
    sinks = (("log.sinks", sink) for sink in config.log.sinks)
    for setting, reference in (*named, *sinks, *(("callbacks", one.make) for one in config.callbacks)):
        if ":" in reference:
            yield setting, reference
