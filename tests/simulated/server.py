"""The process with the pretended devices: one line of JSON in asks for a case, one line answers.

python -m tests.simulated.server GUARD
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO


def main() -> None:
    """Answer until the questions end."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # whatever prints must not print among the answers
        _serve(answers)


def _serve(answers: TextIO) -> None:
    from tests.simulated import accelerator, collectives

    try:
        accelerator.pretend(Path(sys.argv[1]))
    except accelerator.NotPossible as error:
        print(json.dumps({"refused": str(error)}), file=answers, flush=True)
        return
    collectives.install()
    from tests.simulated import cases

    print(json.dumps({"refused": ""}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(cases, json.loads(line))), file=answers, flush=True)


def _answer(cases: Any, question: dict[str, Any]) -> dict[str, Any]:
    try:
        facts = getattr(cases, question["case"])(**question["arguments"])
    # Anything may go wrong in a case, and is what some tests want to see.
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "details": traceback.format_exc()}
    return {"facts": facts}


if __name__ == "__main__":
    main()
