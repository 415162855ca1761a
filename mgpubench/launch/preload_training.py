"""Imported by the fork server too, where something will be trained; see `preload`."""

import contextlib
import importlib

MODULES = (
    "mgpubench.training.rank",
    "mgpubench.runners.single",
    "mgpubench.runners.dp",
    "mgpubench.runners.ddp",
    "mgpubench.training.preflight",
    "torch._dynamo",  # torch's optimizers import it at their first use, which costs a second
)

with contextlib.suppress(BaseException):
    for module in MODULES:
        importlib.import_module(module)
