from grpo_cli.recipe.sections.recipe import Verify
from grpo_cli.reward.judge import proxy_warnings


def test_only_a_learned_score_is_called_a_proxy() -> None:
    specs = {"math": Verify(kind="math"), "taste": Verify(kind="reward_model")}
    assert proxy_warnings(specs) == [
        "`taste` is a learned proxy: check samples by eye, a policy learns what it overrates"
    ]
