"""Do two trees give the same answer? Dispatch by shape; the order of arguments is gold, answer everywhere."""

from __future__ import annotations

from grpo_verifiers.maths.comparing.equations import same_relations
from grpo_verifiers.maths.comparing.expansion import SETLIKE, expand
from grpo_verifiers.maths.comparing.forms.builders import written_out_set
from grpo_verifiers.maths.comparing.forms.residues import same_residues
from grpo_verifiers.maths.comparing.forms.solutions import same_solutions
from grpo_verifiers.maths.comparing.forms.vectors import as_vector
from grpo_verifiers.maths.comparing.left_sides import factors
from grpo_verifiers.maths.comparing.lists import same_finite_sets, same_lists, unordered
from grpo_verifiers.maths.comparing.matrices import is_scaled_matrix, same_cases, same_matrices, same_tuples
from grpo_verifiers.maths.comparing.quantities import same_bases, same_measures, same_ratios, same_values
from grpo_verifiers.maths.comparing.regions import same_regions
from grpo_verifiers.maths.comparing.scalars import ComparisonTrial
from grpo_verifiers.maths.options import MathOptions
from grpo_verifiers.maths.reading.tree import SCALARS, Node, contains


def same(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    """Whether `answer` gives the value of `gold`; unsettled scalars are left in `trial.pending`."""
    # what a failed comparison left open says nothing about the next one
    mark = len(trial.pending)
    if _same(gold, answer, trial):
        return True
    del trial.pending[mark:]
    return False


_COLUMNS = frozenset(("tuple", "matrix"))
_SUMS = frozenset(("+", "*", "neg", "s", "/"))
_GROUPS = frozenset(("all",))


def _length(node: Node) -> int:
    return len(node[3] if node[0] == "tuple" else node[1] if len(node[1]) > 1 else node[1][0])


def _groups(node: Node) -> list[Node]:
    """Factors of a direct product, powers written out."""
    found: list[Node] = []
    for part in factors(node):
        stem, _, power = str(part[1]).partition("^") if part[0] == "all" else ("", "", "")
        many = power.isdigit() and 0 < int(power) < 20
        found.extend([("all", stem)] * int(power) if many else [part])
    return found


def start_trial(options: MathOptions) -> ComparisonTrial:
    """A fresh comparison."""
    return ComparisonTrial(options, same)


def _same(gold: Node, answer: Node, trial: ComparisonTrial) -> bool:
    gold, answer = expand(gold), expand(answer)
    # only where the shapes differ: written out, a set builder may be a finite set
    if gold[0] != answer[0]:
        gold, answer = written_out_set(gold), written_out_set(answer)
    g, a = gold[0], answer[0]
    # from the special to the general: each test counts on those before it not to have applied
    if g == "congruence" or a == "congruence":
        return same_residues(gold, answer)
    if (g == "builder" or a == "builder") and same_residues(gold, answer):
        return True
    if g in ("list", "set") and a in ("list", "set") and same_solutions(gold, answer, trial):
        return True
    if g == "rel" or a == "rel":
        return same_relations(gold, answer, trial)
    if g == "list" or a == "list":
        return same_lists(gold, answer, trial)
    if g in ("unit", "pct") or a in ("unit", "pct"):
        return same_measures(gold, answer, trial)
    # direct products of groups, Z_2 x Z_3, whose factors have no order
    if "*" in (g, a) and {g, a} <= {"*", "all"} and contains(gold, _GROUPS) and contains(answer, _GROUPS):
        return unordered(_groups(gold), _groups(answer), trial)
    if (g in SCALARS or g == "inf") and (a in SCALARS or a == "inf"):
        return same_values(gold, answer, trial)
    if g in SETLIKE or a in SETLIKE:
        return same_regions(gold, answer, trial)
    if g == "set" or a == "set":
        return same_finite_sets(gold, answer, trial)
    if g in _COLUMNS and a in _SUMS and (vector := as_vector(answer, _length(gold))) is not None:
        return _same(gold, vector, trial)
    if a in _COLUMNS and g in _SUMS and (vector := as_vector(gold, _length(answer))) is not None:
        return _same(vector, answer, trial)
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
    # what no rule knows is equal to itself only
    return bool(gold == answer) and g in ("inf", "dots", "neg", "+")
