"""`grpo explain`: parse, look the name up, print. What is printed is generated from the code, so it cannot be out of date."""

from __future__ import annotations

from typing import Annotated

import typer

from grpo_cli.commands import completing, options
from grpo_cli.text import strict_json


def explain(
    name: Annotated[
        str | None, typer.Argument(help="A name; without one the names are listed.", autocompletion=completing.subjects)
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Say what a verifier, an algorithm, a key or a finding means.

    Verifiers come with examples judged now, keys with a line that is valid, findings with what to do about them.

    \b
    Examples:
      grpo explain
      grpo explain math
      grpo explain dapo
      grpo explain train.prune
      grpo explain filters
      grpo explain W20
      grpo explain math --json
    """
    from grpo_cli.jobs.explain.subjects import SUBJECTS, find

    if name is None:
        listed = {subject.title: sorted(subject.names()) for subject in SUBJECTS}
        lines = [f"{s.title}: {s.brief or ', '.join(listed[s.title])}" for s in SUBJECTS]
        print(strict_json(listed) if as_json else "\n".join(lines))
        return
    found = find(name)
    described = [subject.describe(name) for subject in found]
    if as_json:
        also = {"also": described[1:]} if described[1:] else {}
        print(strict_json(described[0] | also, ensure_ascii=False))
    else:
        print("\n\n".join(subject.render(said) for subject, said in zip(found, described, strict=True)))
