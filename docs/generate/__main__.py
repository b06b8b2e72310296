"""`python -m docs.generate`: write what is generated anew. With a file, only all pages of the site as one text into it."""

from __future__ import annotations

import argparse
from pathlib import Path

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m docs.generate", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", help="where the one text goes, such as llms-full.txt")
    wanted = parser.parse_args().file
    if wanted is not None:
        from docs.generate.llms import llms_full

        wanted.write_text(llms_full())
    else:
        from docs.generate.write import write_all

        for file in write_all():
            print(f"written anew: {file}")
