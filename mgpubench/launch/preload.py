"""Imported once by the fork server, so that every worker starts with its modules already loaded.

It must not touch CUDA: a forked process cannot use the context of its parent. What the modules
change in this process, such as its cores, is set back, since all workers inherit it. A failing
import is not reported here, where there is no one to report it to. The first worker fails at the
same import, and reports it.
"""

import contextlib
import importlib
import os
import signal

from mgpubench.launch.forkserver import PRELOAD_VARIABLE
from mgpubench.launch.orphans import end_fork_server_with_parent
from mgpubench.launch.switches import PROCESS, kept, let_warnings_pass

# Ctrl-C in a terminal also reaches this process. The parent decides what it means, so from here on
# the fork server and every worker that it forks ignore it.
signal.signal(signal.SIGINT, signal.SIG_IGN)
end_fork_server_with_parent()

let_warnings_pass()
with kept(PROCESS), contextlib.suppress(BaseException):
    for module in os.environ.get(PRELOAD_VARIABLE, "").split():
        importlib.import_module(module)
