"""The table "what survives" from the tallies of a session: `python -m tests.faults.table TALLY.jsonl`."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path


def tally(fault: str, how: str = "") -> None:
    """Note one try that lost nothing, where `FAULT_TALLY` names a file; a failing test never gets here."""
    if file := os.environ.get("FAULT_TALLY"):
        with open(file, "a") as stream:
            print(json.dumps({"fault": fault, "how": how}), file=stream)


def main() -> None:
    """Print the table."""
    tries: Counter[str] = Counter()
    hows: dict[str, Counter[str]] = {}
    for line in Path(sys.argv[1]).read_text().splitlines():
        one = json.loads(line)
        tries[one["fault"]] += 1
        hows.setdefault(one["fault"], Counter())[one["how"]] += 1
    print("| fault | tried | lost | then |")
    print("|---|---|---|---|")
    for fault, n in sorted(tries.items()):
        then = ", ".join(f"{how} {k}" for how, k in hows[fault].most_common() if how)
        print(f"| {fault} | {n} | nothing | {then} |")


if __name__ == "__main__":
    main()
