"""Runs the benches that are named, or all of them.

Every worker process imports this file again, as multiprocessing does, so it must not load anything
then: it would count as a part of each launch.
"""

from __future__ import annotations

if __name__ == "__main__":
    from benches import main

    main()
