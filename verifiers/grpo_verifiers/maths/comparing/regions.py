"""Solution sets: intervals, inequalities, unions and finite sets of numbers compared as one kind of thing."""

from __future__ import annotations

from grpo_verifiers.maths.comparing.realsets import NotReal, real_set, same_sets
from grpo_verifiers.maths.comparing.scalars import ComparisonTrial, proportional
from grpo_verifiers.maths.reading.tree import SCALARS, Node


def same_regions(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """Whether two solution sets are equal, as pieces of the real line where they are that."""
    try:
        return same_sets(real_set(gold), real_set(answer), trial)
    except NotReal:
        pass
    finite_gold, finite_answer = _finite_union(gold), _finite_union(answer)
    if finite_gold is not None and finite_answer is not None:
        return trial.same(("set", finite_gold), ("set", finite_answer))
    if gold[0] == answer[0] and gold[0] in ("cup", "cap", "minus"):
        if trial.same(gold[1], answer[1]) and trial.same(gold[2], answer[2]):
            return True
        return gold[0] != "minus" and trial.same(gold[1], answer[2]) and trial.same(gold[2], answer[1])
    if gold[0] == answer[0] == "builder":
        return gold[1:3] == answer[1:3] and trial.same(gold[3], answer[3])
    # `x in R` says no more than `R`
    if gold[0] == "all" and answer[0] == "rel":
        return len(answer[2]) == 1 and answer[2][0][0] == "in" and bool(answer[2][0][1] == gold)
    if gold[0] == "rel" and answer[0] == "all":
        return len(gold[2]) == 1 and gold[2][0][0] == "in" and bool(gold[2][0][1] == answer)
    if gold[0] == "list" and answer[0] == "list" and all(item[0] == "rel" for item in (*gold[2], *answer[2])):
        return gold[1] == answer[1] and _unordered_conditions(gold[2], answer[2], trial)
    return bool(gold == answer) and gold[0] != "rel"


def _unordered_conditions(gold: tuple[Node, ...], answer: tuple[Node, ...], trial: ComparisonTrial) -> bool:
    left = list(answer)
    for g in gold:
        for a in left:
            if same_inequality(g, a, trial):
                left.remove(a)
                break
        else:
            return False
    return not left


def _finite_union(node: Node) -> tuple[Node, ...] | None:
    if node[0] == "set":
        items: tuple[Node, ...] = node[1]
        return items
    if node[0] == "cup":
        a, b = _finite_union(node[1]), _finite_union(node[2])
        return None if a is None or b is None else (*a, *b)
    return None


def same_inequality(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """Whether two inequalities say the same up to a positive factor."""
    if answer[0] != "rel" or len(gold[2]) != len(answer[2]):
        return False
    first, second = _oriented(gold), _oriented(answer)
    if len(first) > 1:
        return all(
            op == other and trial.same(a, c) and trial.same(b, d)
            for (a, op, b), (c, other, d) in zip(first, second, strict=True)
        )
    (a, op, b), (c, other, d) = first[0], second[0]
    if op != other:
        return False
    # a factor means nothing where a side is no number
    if any(side[0] not in SCALARS for side in (a, b, c, d)):
        return trial.same(a, c) and trial.same(b, d)
    return proportional(("+", a, ("neg", b)), ("+", c, ("neg", d)), trial, positive=op != "!=")


def _oriented(node: Node) -> list[tuple[Node, str, Node]]:
    """Links written with `<` or `<=`."""
    parts = [node[1], *(part for _, part in node[2])]
    ops = [op for op, _ in node[2]]
    if ops[0] in (">", ">="):
        parts.reverse()
        ops = [{">": "<", ">=": "<=", "<": ">", "<=": ">="}.get(op, op) for op in reversed(ops)]
    return [(parts[i], op, parts[i + 1]) for i, op in enumerate(ops)]
