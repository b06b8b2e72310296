from grpo_cli.recipe.reading.source import Document, parse


def read(text: str) -> Document:
    return parse(text, "r.yaml")


def test_yaml_has_version_1_2_rules() -> None:
    text = "lr: 1e-6\non: yes\nbig: 1_000\nhex: 0x10\nten: 010\nday: 2026-11-27\nnothing: ~\nflag: true\n"
    assert read(text).data == {
        "lr": 1e-6,
        "on": "yes",
        "big": 1000,
        "hex": 16,
        "ten": 10,
        "day": "2026-11-27",
        "nothing": None,
        "flag": True,
    }


def test_a_key_said_twice_is_a_mistake_that_names_the_first() -> None:
    (mistake,) = read("a: 1\nb: 2\na: 3\n").mistakes
    assert mistake.place == "r.yaml:3:1"
    assert mistake.message == "key `a` is said twice, first on line 1"


def test_every_double_key_is_found_at_once() -> None:
    assert len(read("a: {x: 1, x: 2}\nb: 1\nb: 2\n").mistakes) == 2


def test_places_of_keys_and_values_count_from_one() -> None:
    doc = read("sample:\n  group: 8\n")
    assert doc.keys["sample", "group"].col == 3
    assert (doc.values["sample", "group"].line, doc.values["sample", "group"].col) == (2, 10)


def test_merge_keys_and_anchors_work() -> None:
    assert read("a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\n").data["b"] == {"x": 1, "y": 3}


def test_an_alias_inside_itself_is_a_mistake() -> None:
    assert "contains itself" in read("a: &a [*a]\n").mistakes[0].message


def test_an_alias_bomb_is_cut() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    assert any("more than 50,000 values" in m.message for m in read("\n".join(lines)).mistakes)


def test_deep_nesting_is_a_mistake() -> None:
    assert read("[" * 1200).mistakes[0].message == "not a recipe: nested too deeply"


def test_tags_have_no_meaning() -> None:
    doc = read("a: !!python/object/apply:os.system [ls]\nb: !x y\nc: !y {d: 1}\n")
    assert doc.data == {"a": None, "b": None, "c": None}
    assert all("has no meaning here" in m.message for m in doc.mistakes)


def test_broken_yaml_names_line_and_column() -> None:
    (mistake,) = read("a: 1\nb: c: d\n").mistakes
    assert mistake.place == "r.yaml:2:5"
    assert mistake.message.startswith("not YAML: ")


def test_an_open_bracket_is_shown_where_it_opens() -> None:
    (mistake,) = read("a: [1,\nb: 2\n").mistakes
    assert (mistake.place, mistake.message) == ("r.yaml:1:4", "not YAML: the file ends before this is closed")


def test_a_long_line_is_cut_around_the_caret() -> None:
    doc = read("a: [" + "1, " * 200 + "x: ]")
    lines = doc.mistakes[0].source.split("\n") if doc.mistakes else []
    assert all(len(line) <= 120 for line in lines)


def test_control_characters_are_not_shown_as_they_are() -> None:
    doc = read('a: "\x85\u202e"\na: 1\n')
    assert "\u202e" not in doc.mistakes[0].source
