"""Imported once by the fork server, so that every worker starts with torch already loaded.

It must not touch CUDA: a forked process cannot use its parent's context. A failing import is not
reported here, since nobody listens: the first worker fails at the same import, and is heard.
"""

import contextlib
import importlib
import signal

from mgpubench.launch.orphans import end_fork_server_with_parent

# Ctrl-C in a terminal reaches this process too. The parent decides what it means; from here on the
# fork server, and every worker that it forks, leave it alone.
signal.signal(signal.SIGINT, signal.SIG_IGN)
end_fork_server_with_parent()

with contextlib.suppress(BaseException):
    importlib.import_module("mgpubench.machine.cuda")
