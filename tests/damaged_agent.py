"""Before a command of mgpubench: its ranks damage what they exchange.

`python -m tests.damaged_agent python -m mgpubench comm ...`
"""

from __future__ import annotations

import sys

from mgpubench.__main__ import main
from mgpubench.session import workers

if __name__ == "__main__":  # the workers import this module too
    workers.MEASURE_COLLECTIVES = "tests.damaged:measure_damaged"
    sys.argv = ["mgpubench", *sys.argv[4:]]
    main()
