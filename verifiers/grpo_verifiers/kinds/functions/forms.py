"""The conventions of reward functions: what a signature asks for, and the arguments of one call.

completion                         ours, and rubric functions (`state`, `info`, `task`, `parser`)
completions                        TRL: lists, with `prompts`, `completion_ids`, `log_extra`, `log_metric`
solution_str, solution_strs        verl: `data_source`, `ground_truth`, `extra_info`
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from grpo_verifiers.kinds.functions.find import BadFunction
from grpo_verifiers.strict_json import RepeatedKey, loads

Shape = Literal["one", "many"]

OF_ONE = ("completion", "solution_str", "state")
OF_MANY = {"completions": "", "solution_strs": "", "completion_ids": ""}
PLURAL = {"data_sources": "data_source", "ground_truths": "ground_truth", "extra_infos": "extra_info"}
"""verl's batch form: the column behind each list."""
OURS = {
    *OF_ONE, *OF_MANY, *PLURAL, "prompt", "prompts", "row", "group", "trainer_state", "log_extra", "log_metric", "parser",
}  # fmt: skip
"""Parameters that are not columns of the row."""


class FunctionCall(NamedTuple):
    """One completion with what it answers; `token_ids` only where it was sampled here."""

    completion: str
    prompt: str
    row: Mapping[str, Any]
    token_ids: Sequence[int] | None = None


class NotHere(Exception):
    """The function wants what this job does not have."""


@dataclass(frozen=True)
class Signature:
    """Which arguments a function takes. `required` are columns that a row must have."""

    shape: Shape
    names: frozenset[str]
    takes_all: bool
    required: tuple[str, ...]
    is_verl: bool

    @classmethod
    def of(cls, function: Callable[..., Any], name: str, *, has_parser: bool = False) -> Signature:
        """The signature, if it is one of a reward function.

        Raises:
            BadFunction: it is not; the message says what is missing.
        """
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError) as err:
            raise BadFunction(f"`{name}` has no signature that can be read") from err
        only = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
        if only:
            raise BadFunction(f"`{name}` takes `{only[0]}` by position only; columns are passed by name")
        named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        names = {p.name for p in named}
        if not names & {*OF_ONE, *OF_MANY}:
            raise BadFunction(
                f"`{name}` takes no parameter `completion` (one text), `completions` (lists, as in TRL) or"
                f" `solution_str` (as in verl); it takes {', '.join(f'`{p}`' for p in names) or 'nothing'}"
            )
        needed = {p.name for p in named if p.default is p.empty}
        if "trainer_state" in needed:
            raise BadFunction(
                f"`{name}` wants `trainer_state`, which exists only inside a trainer: give it a default, since the same"
                " function judges held-out rows and files"
            )
        if "parser" in needed and not has_parser:
            raise BadFunction(
                f"`{name}` wants a `parser`: name the environment that has it (`module:load_environment`) instead"
            )
        return cls(
            "many" if names & {*OF_MANY} and not names & {*OF_ONE} else "one",
            frozenset(names),
            any(p.kind is p.VAR_KEYWORD for p in parameters),
            tuple(p.name for p in named if p.name in needed and p.name not in OURS and p.name not in DERIVED),
            bool(names & {"solution_str", "solution_strs"}),
        )

    @property
    def derived(self) -> tuple[str, ...]:
        """Parameters that other trainers make out of a row's columns."""
        wanted = {PLURAL.get(name, name) for name in self.names}
        return tuple(name for name in DERIVED if name in wanted)

    def of_one(self, call: FunctionCall, extra: Mapping[str, Any], *, messages: bool) -> dict[str, Any]:
        """The arguments for one completion."""
        call = _own(call)
        completion, prompt = _said(call, messages)
        have: dict[str, Any] = {
            **extra, **call.row, "row": dict(call.row), "prompt": prompt, "completion": completion, "solution_str": call.completion,
        }  # fmt: skip
        if "state" in self.names:
            state = {key: have.get(key) for key in ("prompt", "completion", "answer", "info", "task")}
            have["state"] = {"responses": [], "turn": 1, **state}
        wanted = self.names | (set(call.row) if self.takes_all else set())
        return {name: have[name] for name in wanted if name in have}

    def of_many(
        self, calls: Sequence[FunctionCall], extra: Mapping[str, Any], *, messages: bool
    ) -> dict[str, Any]:
        """The arguments for a batch: a list for each column.

        Raises:
            NotHere: token ids are wanted where there are none.
        """
        calls = [_own(call) for call in calls]
        said = [_said(call, messages) for call in calls]
        columns = dict.fromkeys(name for call in calls for name in call.row)
        lists: dict[str, Any] = {name: [call.row.get(name) for call in calls] for name in columns}
        lists |= {many: lists[one] for many, one in PLURAL.items() if one in lists}
        lists |= {
            "row": [dict(call.row) for call in calls],
            "completions": [completion for completion, _ in said],
            "prompts": [prompt for _, prompt in said],
            "solution_strs": [call.completion for call in calls],
        }
        ids = [call.token_ids for call in calls]
        if None not in ids:
            lists["completion_ids"] = [list(one or ()) for one in ids]
        elif "completion_ids" in self.names:
            raise NotHere("it wants `completion_ids`, which exist only where completions are sampled")
        lists = {**extra, **lists}
        wanted = self.names | (
            {"prompts", "completions", "completion_ids", *columns, *extra} if self.takes_all else set()
        )
        return {name: lists[name] for name in wanted if name in lists}


def takes_parser(function: Callable[..., Any]) -> bool:
    """Whether a function has a parameter `parser`."""
    try:
        return "parser" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


DERIVED = ("ground_truth", "data_source", "extra_info", "info", "task")


def derive(row: dict[str, Any], names: Sequence[str]) -> str | None:
    """Add to a row what a function of another trainer finds there; says which part cannot be had.

    verl keeps the gold at `reward_model.ground_truth`, rubrics their data in `info`, which may be JSON text.

    Raises:
        RepeatedKey: that text says a key twice.
    """
    for name in names:
        if name == "info" and isinstance(row.get("info"), str):
            row["info"] = _object(row["info"])
        if name in row:
            continue
        if name == "ground_truth":
            model = row.get("reward_model")
            if isinstance(model, str):
                model = _object(model)
            if isinstance(model, Mapping) and "ground_truth" in model:
                row[name] = model["ground_truth"]
            elif "answer" in row:
                row[name] = row["answer"]
            else:
                return "no column `ground_truth`, `reward_model` with a `ground_truth`, or `answer`"
        else:
            row[name] = {"data_source": "", "extra_info": {}, "info": {}, "task": "default"}[name]
    return None


def _object(text: str) -> Any:
    try:
        return loads(text)
    except RepeatedKey:
        raise
    except ValueError:
        return text


def _own(call: FunctionCall) -> FunctionCall:
    """The call with a row of its own: calls that came together share their rows, and a function may change what it is given."""
    return call._replace(row=copy.deepcopy(call.row))


def _said(call: FunctionCall, messages: bool) -> tuple[Any, Any]:
    """Completion and prompt, as texts or as lists of messages."""
    own = call.row.get("prompt")
    is_chat = isinstance(own, list) and bool(own) and all(isinstance(m, Mapping) and "role" in m for m in own)
    if not messages:
        return call.completion, call.prompt
    prompt = own if is_chat else [{"role": "user", "content": call.prompt}]
    return [{"role": "assistant", "content": call.completion}], prompt
