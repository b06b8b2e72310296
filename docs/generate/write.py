"""Every generated page by its path, and writing those that differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from docs.generate.commands import commands_page
from docs.generate.fits import hardware_page
from docs.generate.keys import keys_file
from docs.generate.llms import llms_page
from docs.generate.names import names_page
from docs.generate.outputs import outputs_page
from docs.generate.recipe import recipe_page, trl_page
from docs.generate.verifiers import verifiers_page

DOCS = Path(__file__).resolve().parents[1]
PAGES: dict[str, Callable[[], str]] = {
    "../grpo_cli/jobs/explain/keys.json": keys_file,
    "reference/recipe.md": recipe_page,
    "reference/trl.md": trl_page,
    "reference/verifiers.md": verifiers_page,
    "reference/commands.md": commands_page,
    "reference/names.md": names_page,
    "reference/outputs.md": outputs_page,
    "hardware.md": hardware_page,
    "llms.txt": llms_page,
}
"""By path from docs/: what writes the page. `llms.txt` reads the others and comes last."""


def write_all() -> list[Path]:
    """The files that were not what the program says, now written anew."""
    changed = []
    for name, page in PAGES.items():
        file, text = DOCS / name, page()
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
            changed.append(file)
    return changed
