"""Mutated recipes are loaded, or refused with places; anything else is a bug. `RECIPE_FUZZ` sets the number of tries."""

import os
import random
from copy import deepcopy
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from grpo_cli.errors import RecipeError
from grpo_cli.recipe.reading.dump import to_yaml
from grpo_cli.recipe.reading.load import check, load, stack
from grpo_cli.recipe.reading.source import parse, shipped_recipes

TRIES = int(os.environ.get("RECIPE_FUZZ", "150"))
TEXTS = [path.read_text(encoding="utf-8") for path in shipped_recipes().values()]
PIECES = [
    *"{}[]:,-&*!|>'\"%@`#\t\n \x00\x1b\u2028é",
    "<<: ",
    "*a",
    "&a ",
    "!!int ",
    "? ",
    "---\n",
    "...",
    "null",
    "1e999",
]
ODD = [
    None,
    True,
    -1,
    0,
    1.5,
    1e308,
    10**30,
    float("nan"),
    "",
    "x",
    "{",
    "\x07",
    [],
    {},
    [1],
    {"from": 3},
    [[]],
    {"kind": "math"},
]
fuzz = settings(max_examples=TRIES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def edit(text: str, rng: random.Random) -> str:
    at, end = sorted(rng.randrange(len(text) + 1) for _ in range(2))
    end = min(end, at + 30)
    return rng.choice(
        [
            text[:at] + text[end:],
            text[:at] + rng.choice(PIECES) + text[at:],
            text[:end] + text[at:end] + text[end:],
            text[:at] + rng.choice(PIECES) + text[end:],
        ]
    )


def spoil(data: Any, rng: random.Random) -> None:
    """Change one random place of nested data."""
    holder = data
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(holder[key], dict | list) and holder[key] and rng.random() < 0.7:
            holder = holder[key]
            continue
        what = rng.randrange(3)
        if what == 0:
            del holder[key]
        elif what == 1 and isinstance(holder, dict):
            holder[rng.choice([key + "s", "kind", "from", "options", ""])] = holder.pop(key)
        else:
            holder[key] = deepcopy(rng.choice(ODD))
        return


def load_or_refuse(text: str, sets: list[str], folder: Path) -> None:
    file = folder / "r.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        recipe = load(file, sets)
    except RecipeError as err:
        assert all(m.message for m in err.mistakes)
        assert all(m.place or len(err.mistakes) == 1 for m in err.mistakes)
        err.render().encode("utf-8", "surrogatepass")
        return
    again = folder / "again.yaml"
    again.write_text(to_yaml(recipe), encoding="utf-8")
    assert load(again) == recipe


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@fuzz
@given(st.integers(0, 2**32))
def test_a_recipe_with_broken_text_never_gives_a_traceback(folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    text = rng.choice(TEXTS)
    for _ in range(rng.randint(1, 4)):
        text = edit(text, rng)
    load_or_refuse(text, [], folder)


@fuzz
@given(st.integers(0, 2**32))
def test_a_recipe_with_wrong_values_never_gives_a_traceback(folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    yaml = YAML(typ="safe", pure=True)
    data = yaml.load(rng.choice(TEXTS))
    for _ in range(rng.randint(1, 5)):
        spoil(data, rng)
    out = StringIO()
    yaml.dump(data, out)
    load_or_refuse(out.getvalue(), [], folder)


WORDS = "model data train eval from verify math kl beta 0 1 sample group warmup demonstration template trl x options lora r extends"
PATHS = st.lists(st.sampled_from([*WORDS.split(), ""]), max_size=5).map(".".join)
VALUES = st.sampled_from(["3", "x", "{r: 8}", "[1", "[]", "null", "", "{}", "*a", "1e-6", "\x00", "{a: {b: 1}}", "'"])


@fuzz
@given(
    st.integers(0, len(TEXTS) - 1), st.lists(st.builds("{}={}".format, PATHS, VALUES) | st.text(max_size=9), max_size=4)
)
def test_flags_never_give_a_traceback(folder: Path, which: int, sets: list[str]) -> None:
    load_or_refuse(TEXTS[which], sets, folder)


@fuzz
@given(st.text(max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    doc = parse(text, "r.yaml")
    if isinstance(doc.data, dict):
        check(stack([doc], []))
