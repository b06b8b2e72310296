"""`python -m docs.generate`: write what is generated anew. With a file, only all pages of the site as one text into it."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    if len(sys.argv) > 1:
        from docs.generate.llms import llms_full

        Path(sys.argv[1]).write_text(llms_full())
    else:
        from docs.generate.write import write_all

        for file in write_all():
            print(f"written anew: {file}")
