"""The tree of an episode's messages: which requests go on in a row, which begin another, and that no id is made twice."""

from __future__ import annotations

import random

import pytest

from grpo_cli.environments.endpoint.messages import Call, Message, RequestRefused
from grpo_cli.environments.endpoint.tree import Tree

END = 0


def shown(message: Message) -> list[int]:
    words = f"{message.role}:{message.text}{message.calls or ''}"
    return [*map(ord, words), END]


def render(messages, tools) -> list[int]:
    return [*map(ord, "".join(tools)), *(i for message in messages for i in shown(message)), *map(ord, "assistant:")]


def suffix(turn, last, tail) -> list[int] | None:
    if "forget" in turn.text:
        return None
    closing = [] if last == END else [END]
    return [*closing, *(i for message in tail for i in shown(message)), *map(ord, "assistant:")]


def a_tree(max_rows: int = 8) -> Tree:
    return Tree(render, suffix, max_rows)


def said(text: str, *calls: Call) -> Message:
    return Message("assistant", text, calls)


def user(text: str) -> Message:
    return Message("user", text)


SYSTEM, ASK = Message("system", "s"), user("q")
# ids that no encoding of the text would give: what is taken up must be these
SAMPLED = [1001, 1002, END]


def play(tree: Tree, *messages: Message, text: str = "a", ids=SAMPLED, tools=()) -> int:
    plan = tree.plan(tuple(messages), tuple(tools))
    return tree.commit(plan, ids, [-1.0] * len(ids), [said(text)])


def test_a_harness_that_keeps_what_was_said_plays_one_row_of_the_very_ids():
    tree = a_tree()
    play(tree, SYSTEM, ASK)
    play(tree, SYSTEM, ASK, said("a"), user("r"), text="b", ids=[1003, END])
    (row,) = tree.rows
    between = suffix(said("a"), END, [user("r")])
    assert row.ids == render([SYSTEM, ASK], ()) + SAMPLED + between + [1003, END]
    assert row.ids[: row.start] == render([SYSTEM, ASK], ())
    assert row.spans == [(0, 3), (3 + len(between), 5 + len(between))]
    assert row.logps == [-1.0] * 3 + [0.0] * len(between) + [-1.0] * 2


def test_ids_of_calls_and_the_order_of_keys_make_no_difference_but_arguments_do():
    one, other = (said("", Call("f", a)) for a in ('{"a":1}', '{"a":2}'))
    tree = a_tree()
    plan = tree.plan((ASK,), ())
    tree.commit(plan, SAMPLED, [-1.0] * 3, [one])
    result = Message("tool", "r", answers=0, name="f")
    assert tree.plan((ASK, one, result), ()).extends == 0
    assert tree.plan((ASK, other, result), ()).why == "history"


def test_a_rewritten_history_begins_a_row_and_what_was_sampled_stays_where_it_is():
    tree = a_tree()
    play(tree, SYSTEM, ASK)
    play(tree, SYSTEM, ASK, said("a, in other words"), user("r"), ids=[1004, END])
    first, second = tree.rows
    assert (second.why, second.parent, second.at) == ("history", 0, 2)
    assert second.ids[: second.start] == render([SYSTEM, ASK, said("a, in other words"), user("r")], ())
    assert first.ids[first.start :] == SAMPLED and second.ids[second.start :] == [1004, END]


@pytest.mark.parametrize(
    ("messages", "tools", "why", "at", "is_main"),
    [
        ([user("a title, please")], (), "root", 0, False),
        ([SYSTEM, user("another question")], (), "history", 1, True),
        ([SYSTEM, ASK, said("a"), user("r")], ("f",), "tools", 3, False),
        ([SYSTEM, ASK, said("forget"), user("r")], (), "template", 3, True),
        ([SYSTEM, ASK, said("a"), said("b"), user("r")], (), "history", 3, True),
        ([SYSTEM, ASK, said("a")], (), "history", 3, True),
    ],
)
def test_what_begins_a_row_anew_is_named(messages, tools, why, at, is_main):
    tree = a_tree()
    play(tree, SYSTEM, ASK)
    play(tree, SYSTEM, ASK, text="forget")
    plan = tree.plan(tuple(messages), tools)
    assert (plan.extends, plan.why, plan.at, plan.is_main) == (None, why, at, is_main)
    assert plan.prompt_ids == render(messages, tools)


def test_the_same_prefix_again_is_a_branch_with_the_shared_ids_as_context():
    tree = a_tree()
    play(tree, ASK)
    play(tree, ASK, text="another", ids=[1005, END])
    play(tree, ASK, said("a"), user("r"), text="x", ids=[1006, END])
    play(tree, ASK, said("a"), user("other"), text="y", ids=[1007, END])
    first, again, branch = tree.rows
    assert [row.why for row in tree.rows] == ["", "sibling", "sibling"]
    assert again.ids == [*render([ASK], ()), 1005, END] and again.start == len(render([ASK], ()))
    assert branch.ids[: branch.start] == render([ASK], ()) + SAMPLED + suffix(said("a"), END, [user("other")])
    assert branch.parent == 0 and branch.spans == [(0, 2)]
    assert first.ids[-2:] == [1006, END]


def test_two_requests_under_way_do_not_both_extend_a_row_and_a_lost_one_leaves_no_trace():
    tree = a_tree()
    play(tree, ASK)
    before = list(tree.rows[0].ids)
    one = tree.plan((ASK, said("a"), user("r")), ())
    other = tree.plan((ASK, said("a"), user("t")), ())
    assert (one.extends, other.extends, other.why) == (0, None, "sibling")
    tree.abort(one)
    tree.abort(other)
    assert len(tree.rows) == 1 and tree.rows[0].ids == before
    assert tree.plan((ASK, said("a"), user("t")), ()).extends == 0


def test_said_with_and_without_the_text_that_ended_it_are_the_same_turn():
    tree = a_tree()
    plan = tree.plan((ASK,), ())
    tree.commit(plan, [1008], [-1.0], [said("go"), said("go</code>")])
    for text in ("go", "go</code>"):
        plan = tree.plan((ASK, said(text), user("r")), ())
        assert plan.extends == 0
        # the turn had no end token: the template's own closes it
        assert plan.prompt_ids[: len(render([ASK], ())) + 2] == [*render([ASK], ()), 1008, END]
        tree.abort(plan)


def test_an_episode_of_too_many_rows_is_over():
    tree = a_tree(max_rows=2)
    play(tree, ASK)
    under_way = tree.plan((user("two"),), ())
    with pytest.raises(RequestRefused, match="rewritten into 2 rows") as err:
        tree.plan((user("three"),), ())
    assert err.value.code == "episode_over"
    tree.abort(under_way)
    assert play(tree, user("three")) == 1


def test_of_random_harnesses_every_sampled_id_stands_in_one_span_behind_the_prompt_it_was_sampled_after():
    for seed in range(200):
        chance = random.Random(seed)
        tree, made, histories, under_way = a_tree(max_rows=50), 2000, [(SYSTEM, ASK)], []
        fed: dict[int, list[int]] = {}
        for _ in range(25):
            history = chance.choice(histories[-4:])
            if chance.random() < 0.2 and len(history) > 2:  # the past is rewritten
                at = chance.randrange(1, len(history))
                history = (*history[:at], Message(history[at].role, "changed"), *history[at + 1 :])
            if history[-1].role == "assistant":
                history = (*history, user(chance.choice("rst")))
            try:
                plan = tree.plan(history, chance.choice([(), (), ("f",)]))
            except RequestRefused:
                continue
            under_way.append((plan, history))
            chance.shuffle(under_way)
            while under_way and chance.random() < 0.7:
                plan, history = under_way.pop()
                if chance.random() < 0.1:
                    tree.abort(plan)
                    continue
                ids = list(range(made, made + chance.randrange(1, 5)))
                made += len(ids)
                fed[ids[0]] = list(plan.prompt_ids)
                text = chance.choice("abc")
                tree.commit(plan, ids, [-float(i) for i in ids], [said(text)])
                histories.append((*history, said(text)))
        trained = []
        for row in tree.rows:
            assert len(row.logps) == len(row.ids) - row.start
            for start, end in row.spans:
                ids = row.ids[row.start + start : row.start + end]
                assert row.ids[: row.start + start] == fed[ids[0]]
                assert row.logps[start:end] == [-float(i) for i in ids]
                trained += ids
        assert sorted(trained) == list(range(2000, made)) and len(trained) > 20
