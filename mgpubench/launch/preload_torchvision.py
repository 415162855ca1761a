"""Imported by the fork server too, where the plan needs torchvision; see `preload`."""

import contextlib
import importlib

with contextlib.suppress(BaseException):
    importlib.import_module("mgpubench.training.data.decode")
