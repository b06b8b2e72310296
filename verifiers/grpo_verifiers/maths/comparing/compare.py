"""Do two trees give the same answer? Dispatch by shape; the order of arguments is gold, answer everywhere."""

from __future__ import annotations

from grpo_verifiers.maths.comparing.equations import same_relations
from grpo_verifiers.maths.comparing.lists import same_finite_sets, same_lists
from grpo_verifiers.maths.comparing.matrices import is_scaled_matrix, same_cases, same_matrices, same_tuples
from grpo_verifiers.maths.comparing.measures import same_bases, same_measures, same_ratios, same_values
from grpo_verifiers.maths.comparing.regions import same_regions
from grpo_verifiers.maths.comparing.scalars import ComparisonTrial
from grpo_verifiers.maths.comparing.spreading import SETLIKE, spread
from grpo_verifiers.maths.options import MathOptions
from grpo_verifiers.maths.reading.tree import SCALARS, Node


def same(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """Whether `answer` gives the value of `gold`; unsettled scalars are left in `trial.pending`."""
    mark = len(trial.pending)
    if _same(gold, answer, trial):
        return True
    del trial.pending[mark:]
    return False


def start_trial(options: MathOptions) -> ComparisonTrial:
    """A fresh comparison."""
    return ComparisonTrial(options, same)


def _same(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    gold, answer = spread(gold), spread(answer)
    g, a = gold[0], answer[0]
    if g == "rel" or a == "rel":
        return same_relations(gold, answer, trial)
    if g == "list" or a == "list":
        return same_lists(gold, answer, trial)
    if g in ("unit", "pct") or a in ("unit", "pct"):
        return same_measures(gold, answer, trial)
    if (g in SCALARS or g == "inf") and (a in SCALARS or a == "inf"):
        return same_values(gold, answer, trial)
    if g in SETLIKE or a in SETLIKE:
        return same_regions(gold, answer, trial)
    if g == "set" or a == "set":
        return same_finite_sets(gold, answer, trial)
    if "matrix" in (g, a) or is_scaled_matrix(gold) or is_scaled_matrix(answer):
        return same_matrices(gold, answer, trial)
    if g == "tuple" and a == "tuple":
        return same_tuples(gold, answer, trial)
    if g == "cases" and a == "cases":
        return same_cases(gold, answer, trial)
    if g in ("ratio", "clock") or a in ("ratio", "clock"):
        return same_ratios(gold, answer, trial)
    if g == "base" or a == "base":
        return same_bases(gold, answer)
    return bool(gold == answer) and g in ("inf", "dots", "neg", "+")
