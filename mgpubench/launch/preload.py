"""Imported once by the fork server, so that every worker starts with its modules already loaded.

It must not touch CUDA: a forked process cannot use the context of its parent. A failing import is
not reported here, where there is no one to report it to. The first worker fails at the same import,
and reports it.
"""

import contextlib
import importlib
import os
import signal

from mgpubench.launch.forkserver import PRELOAD_VARIABLE
from mgpubench.launch.orphans import end_fork_server_with_parent

# Ctrl-C in a terminal also reaches this process. The parent decides what it means, so from here on
# the fork server and every worker that it forks ignore it.
signal.signal(signal.SIGINT, signal.SIG_IGN)
end_fork_server_with_parent()

with contextlib.suppress(BaseException):
    for module in os.environ.get(PRELOAD_VARIABLE, "").split():
        importlib.import_module(module)
