"""What `grpo explain` says of preferences."""

from __future__ import annotations

import typing

import pytest

from grpo_cli.jobs.explain.methods import LOSSES as ABOUT
from grpo_cli.jobs.explain.methods import METHODS
from grpo_cli.jobs.explain.methods import describe_preference as describe
from grpo_cli.jobs.explain.methods import render_preference as render
from grpo_cli.jobs.explain.subjects import find
from grpo_cli.recipe.sections.recipe import Preference


def test_every_loss_of_a_recipe_is_explained() -> None:
    assert list(ABOUT) == list(typing.get_args(Preference))


@pytest.mark.parametrize("name", [*METHODS, *ABOUT])
def test_a_name_leads_here_and_not_to_a_key(name: str) -> None:
    subject = find(name)[0]
    assert subject.title == "preferences"
    said = subject.render(subject.describe(name))
    assert said == render(describe(name)) and said.startswith(f"{name}\n")
    assert all(len(line) <= 140 for line in said.splitlines())
