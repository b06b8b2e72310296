import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from grpo_cli.errors import RecipeError
from grpo_cli.recipe.checking.values import check_verifiers, describe, options_class
from grpo_cli.recipe.reading.dump import to_yaml
from grpo_cli.recipe.reading.load import load
from grpo_verifiers import registry
from grpo_verifiers.registry import KINDS
from grpo_verifiers.verifier import BadOption, Verifier


@dataclass(frozen=True)
class ToyOptions:
    count: int = 1
    share: float = 0.5
    mode: Literal["a", "b"] = "a"
    names: tuple[str, ...] = ()
    weights: list[float] = field(default_factory=list)
    text: str | None = None

    def __post_init__(self) -> None:
        if self.count < 0:
            raise BadOption("count", "`count` must not be negative")


class Toy(Verifier):
    Options: ClassVar[type] = ToyOptions

    def compile(self, row: Any) -> Any: ...

    def judge(self, samples: Any) -> Any: ...


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.KINDS, "toy", f"{__name__}:Toy")


def messages(**options: Any) -> list[str]:
    return [f.message for f in check_verifiers({"verify": {"t": {"kind": "toy", **options}}})]


def test_right_options_pass_and_lists_become_what_the_verifier_declares() -> None:
    data = {"verify": {"t": {"kind": "toy", "share": 1, "names": ["x"], "text": None, "weights": [1, 2]}}}
    assert check_verifiers(data) == []
    assert data["verify"]["t"]["names"] == ("x",)


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("count", 1.5, "must be a whole number, got 1.5"),
        ("count", True, "must be a whole number, got true"),
        ("share", "x", 'must be a number, got "x"'),
        ("mode", "c", 'must be one of a, b, got "c"'),
        ("names", "x", 'must be a list of texts, got "x"'),
        ("text", 3, "must be text or nothing, got 3"),
    ],
)
def test_a_wrong_type_is_said_in_words(option: str, value: Any, expected: str) -> None:
    assert messages(**{option: value}) == [f"`verify.t.{option}` {expected}"]


def test_what_the_verifier_itself_refuses_is_told_with_the_full_name() -> None:
    assert messages(count=-1) == ["`verify.t.count` must not be negative"]


def test_an_unknown_option_gets_the_nearest_name() -> None:
    (found,) = check_verifiers({"verify": {"t": {"kind": "toy", "coun": 1}}})
    assert found.at_key and found.hint.startswith("did you mean `count`?")


def test_an_unknown_kind_gets_the_nearest_name() -> None:
    (found,) = check_verifiers({"verify": {"t": {"kind": "rejex"}}})
    assert "did you mean `regex`?" in found.hint


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_option_of_every_kind_can_be_described_and_checked(kind: str) -> None:
    import typing

    options = options_class(kind)
    hints = typing.get_type_hints(options)
    for one in dataclasses.fields(options):
        assert describe(hints[one.name])


def test_resolved_options_stand_beside_the_verifiers_own_keys(tmp_path: Path) -> None:
    from grpo_cli.recipe.reading.load import load

    recipe = load("quickstart", ["verify.math.tolerance=0.1"])
    assert "    tolerance: 0.1\n" in to_yaml(recipe)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("shaping: {overlong: {cache: 3}}", "`cache` of `overlong` must be in [0, 1)"),
        ("shaping: {length: {targt: 9}}", "did you mean `target`?"),
        ("shaping: {repetition: {options: {n: 0}}}", "`n` of `repetition` must be a whole number from 1"),
    ],
)
def test_options_of_shaping_terms_are_checked_at_load(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(
        "model: builtin:tiny\ndata: {train: tasks:addition3, prompt: '{question}'}\n"
        f"verify: {{math: {{}}}}\ntrain: {{steps: 1}}\n{line}\n"
    )
    with pytest.raises(RecipeError) as caught:
        load(file)
    assert said in caught.value.render()
    assert f"{file}:5:" in caught.value.render()
