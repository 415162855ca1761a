"""The folder with the checkpoints of a training."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from mgpubench.errors import RunFailed
from mgpubench.results.checkpoint_files import file_name, find_checkpoints
from mgpubench.results.whole_file import sync_folder
from mgpubench.training.checkpoint import Content, save


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of a training. Files that are not named as ours are never touched."""

    folder: Path
    keep: int
    """How many of the last ones are kept, besides the best one."""

    def write(self, content: Content) -> Path:
        """Write the checkpoint of an epoch, and then remove those that are no longer kept.

        The best one, which `content` names, and the last ones are kept.

        Raises:
            RunFailed: if a weight is not finite, if the disk refuses, or if the file exists.
        """
        path = self.folder / file_name(content.about.epoch)
        if os.path.lexists(path):
            raise RunFailed(f"{path} exists already", "Give another folder with --out.")
        try:
            self._make_folder()
            save(path, content)
            self._remove_old(content)
        except OSError as error:
            raise RunFailed(
                f"{error.filename or self.folder} cannot be written: {error.strerror}",
                "Check the permissions of the folder.",
            ) from error
        return path

    def _make_folder(self) -> None:
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True)
            sync_folder(self.folder.parent)

    def _remove_old(self, content: Content) -> None:
        """Remove old ones. The new one is durable by now."""
        found = find_checkpoints(self.folder)
        kept = {*list(found)[-self.keep :]}
        if content.about.best is not None:
            kept.add(content.about.best.epoch)
        for epoch in found.keys() - kept:
            found[epoch].unlink(missing_ok=True)
