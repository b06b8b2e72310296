"""Verifiers named on the command line."""

from __future__ import annotations

import pytest

from grpo_cli.errors import UsageError
from grpo_cli.reward.plan import from_flags


def test_an_option_whose_json_eats_tex_is_refused() -> None:
    with pytest.raises(UsageError, match=r"`\\boxed` in double quotes is U\+0008"):
        from_flags(["format"], options=[r'tags=["\boxed"]'])
    plan = from_flags(["format"], options=[r'tags=["\\boxed"]'])
    assert plan.entries["format"].options == {"tags": [r"\boxed"]}
