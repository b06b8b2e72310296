from pathlib import Path

from grpo_cli.recipe import load, shipped_recipes


def test_every_shipped_recipe_loads_and_its_resolved_text_loads_back_equal(tmp_path: Path) -> None:
    for name in shipped_recipes():
        recipe = load(name)
        written = tmp_path / f"{name}.yaml"
        written.write_text(recipe.resolved(), encoding="utf-8")
        assert load(written) == recipe
