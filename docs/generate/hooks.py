"""What mkdocs asks while it builds: pages and files outside docs/ get a place on the site, and links to them are led there.

The pages stay as a forge shows them, with links relative to the tree; only what mkdocs reads is changed.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parents[2]
PLACES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "verifiers/README.md": "verifiers/package.md",
    "CITATION.cff": "CITATION.cff",
    "examples/README.md": "examples/README.md",
    "examples/answers.jsonl": "examples/answers.jsonl",
    "examples/first_run.ipynb": "examples/first_run.ipynb",
    "examples/hints.py": "examples/hints.py",
    "examples/hints.yaml": "examples/hints.yaml",
    "examples/minimal_grpo.py": "examples/minimal_grpo.py",
    "examples/plain_trl.py": "examples/plain_trl.py",
    "examples/slurm.sh": "examples/slurm.sh",
    "examples/worlds/frozen-lake.yaml": "examples/worlds/frozen-lake.yaml",
}
"""By path in the tree: the path on the site, of what does not lie in docs/."""
SOURCES = {place: path for path, place in PLACES.items()}
TOKEN = re.compile(
    r"^```.*?^```$|(?P<text>!?\[[^\]\n]*\]\()(?P<target>[^()\s#]+)(?P<anchor>#[^()\s]*)?\)|`[^`\n]*`", re.M | re.S
)
"""A fenced block, a link or code: whatever begins first, so that a link in code is none, and code in a link's text is."""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """The files of docs/, and those of `PLACES`."""
    from mkdocs.structure.files import File

    for path, place in PLACES.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The page with links that hold on the site."""
    return lead_links(markdown, page.file.src_uri)


def lead_links(text: str, place: str) -> str:
    """Links of the page at `place` on the site, relative in the tree, made relative on the site; code is left as it is."""
    here = posixpath.dirname(SOURCES.get(place, f"docs/{place}"))

    def led(found: re.Match[str]) -> str:
        target = found["target"]
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        path = posixpath.normpath(posixpath.join(here, target))
        on_site = PLACES.get(path, path.removeprefix("docs/"))
        led_to = posixpath.relpath(on_site, posixpath.dirname(place) or ".")
        return f"{found['text']}{led_to}{found['anchor'] or ''})"

    return TOKEN.sub(led, text)
