"""The messages of one episode as a tree, with the token ids that the engine was fed and that it sampled. Its paths are rows.

How this works. `plan` follows a request's messages down the tree. A request that goes on where a row ends extends that row: its prompt is
the row's own ids and the suffix that the chat template puts behind a turn. The same prefix once more is a branch: a new row
whose prompt holds the shared ids as context. Anything else has another history: the whole request is rendered, and a new
row begins. `commit` puts the sampled ids behind the prompt, `abort` forgets the plan. Nothing that was sampled is encoded again,
and every sampled token is trained in one row only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from grpo_cli.environments.endpoint.messages import Message, RequestRefused

Tools = tuple[str, ...]
Render = Callable[[Sequence[Message], Tools], list[int]]
"""The ids of a whole request, up to where the model's turn begins."""
Suffix = Callable[[Message, int, Sequence[Message]], list[int] | None]
"""The ids behind a turn, whose last id is given, of these messages and of the opening of the next turn; None where the template
does not keep what was said."""

WHY = ("history", "tools", "template", "sibling", "root")
"""Why a further row begins: the messages were changed, other tools are offered, the template drops what was said, the same prefix
again, and messages that begin with other words."""


@dataclass(slots=True)
class TokenRow:
    """One row: `ids` from `start` on follow its prompt, and `spans` of those were sampled. `why` it began behind `at` messages that
    it shares with the row `parent`."""

    ids: list[int]
    start: int
    logps: list[float] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    parent: int | None = None
    at: int = 0
    why: str = ""
    is_main: bool = True
    is_taken: bool = False
    """A request that goes on from its end is under way."""

    @property
    def sampled(self) -> int:
        """Tokens that the model wrote."""
        return sum(end - start for start, end in self.spans)


@dataclass(slots=True)
class _Node:
    children: dict[Message, _Node] = field(default_factory=dict)
    row: int | None = None
    asked: list[int] | None = None
    """The prompt of the request that ended here."""
    end: int | None = None
    """Of a turn of the model: ids of its row up to its end."""


@dataclass(slots=True)
class RowPlan:
    """How a request is answered: behind these ids, in the row `extends` or in a new one."""

    prompt_ids: list[int]
    extends: int | None
    node: _Node
    tail: tuple[Message, ...]
    parent: int | None = None
    at: int = 0
    why: str = ""
    is_main: bool = True


class Tree:
    """The rows of one episode."""

    def __init__(self, render: Render, suffix: Suffix, max_rows: int) -> None:
        self.render, self.suffix, self.max_rows = render, suffix, max_rows
        self.rows: list[TokenRow] = []
        self._roots: dict[Tools, _Node] = {}
        self._first: tuple[Tools, Message | None] | None = None
        self._under_way = 0

    def plan(self, messages: tuple[Message, ...], tools: Tools) -> RowPlan:
        """Where a request goes.

        Raises:
            RequestRefused: it would begin one row too many.
            whatever `render` raises.
        """
        system = messages[0] if messages[0].role == "system" else None
        path, rest = _walk(self._roots.get(tools), messages)
        plan = self._going_on(messages, path)
        if plan is None:
            parent, at, why = self._reason(messages, tools, path)
            plan = RowPlan(self.render(messages, tools), None, _Node(), messages, parent, at, why)
        if plan.extends is not None:
            self.rows[plan.extends].is_taken = True
        else:
            if len(self.rows) + self._under_way >= self.max_rows:
                said = f"the episode is over: its history was rewritten into {self.max_rows} rows"
                raise RequestRefused(said, code="episode_over")
            self._under_way += 1
        # only now does the tree grow: a request that is refused leaves no trace
        self._first = self._first or (tools, system)
        plan.is_main = self._first == (tools, system)
        node = path[-1] if path else self._roots.setdefault(tools, _Node())
        for message in rest:
            node = node.children.setdefault(message, _Node())
        node.asked, plan.node = plan.prompt_ids, node
        if node.row is None:
            node.row = plan.extends if plan.extends is not None else plan.parent
        return plan

    def commit(self, plan: RowPlan, ids: Sequence[int], logps: Sequence[float], said: Sequence[Message]) -> int:
        """Puts what was sampled behind a plan's prompt and returns its row; `said` are the forms in which the harness may show it."""
        if plan.extends is None:
            self._under_way -= 1
            row = TokenRow(
                list(plan.prompt_ids), len(plan.prompt_ids), [], [], plan.parent, plan.at, plan.why, plan.is_main
            )
            number = len(self.rows)
            self.rows.append(row)
        else:
            number, row = plan.extends, self.rows[plan.extends]
            row.is_taken = False
            between = plan.prompt_ids[len(row.ids) :]
            row.ids += between
            # place holders: the mask keeps them out of every sum
            row.logps += [0.0] * len(between)
        begin = len(row.ids) - row.start
        row.ids += ids
        row.logps += logps
        row.spans.append((begin, begin + len(ids)))
        plan.node.row, plan.node.asked = number, plan.prompt_ids
        turn = _Node()
        for message in said:
            turn = plan.node.children.setdefault(message, turn)
            # a sibling that said the same keeps its place: both rows end there, and the older one goes on
            if turn.end is None:
                turn.row, turn.end = number, len(row.ids)
        return number

    def abort(self, plan: RowPlan) -> None:
        """The request came to nothing."""
        if not any(child.end for child in plan.node.children.values()):
            plan.node.asked = None
        if plan.extends is None:
            self._under_way -= 1
        else:
            self.rows[plan.extends].is_taken = False

    def _going_on(self, messages: tuple[Message, ...], path: Sequence[_Node]) -> RowPlan | None:
        """A plan that takes up ids that are there; None where there are none to take up."""
        if len(path) == len(messages) + 1 and (asked := path[-1].asked) is not None:
            return RowPlan(asked, None, path[-1], (), path[-1].row, len(messages), "sibling")
        # path[0] is the root: the node of messages[i] is path[i + 1]
        deepest = next((i for i in range(len(path) - 1, 0, -1) if path[i].end is not None), None)
        if deepest is None:
            return None
        tail, turn = messages[deepest:], path[deepest]
        assert turn.row is not None
        row = self.rows[turn.row]
        if not tail or any(message.role not in ("user", "tool") for message in tail):
            return None
        behind = self.suffix(messages[deepest - 1], row.ids[turn.end - 1], tail)  # type: ignore[operator]
        if behind is None:
            return None
        prompt = [*row.ids[: turn.end], *behind]
        if turn.end == len(row.ids) and not row.is_taken:
            return RowPlan(prompt, turn.row, turn, tail)
        return RowPlan(prompt, None, turn, tail, turn.row, deepest, "sibling")

    def _reason(
        self, messages: tuple[Message, ...], tools: Tools, path: Sequence[_Node]
    ) -> tuple[int | None, int, str]:
        """The row that shares most with a request that begins anew, how many messages, and why it does."""
        if not self.rows:
            return None, 0, ""
        others = [(_walk(root, messages)[0], other != tools) for other, root in self._roots.items()]
        shared, is_other = max(others, key=lambda one: (len(one[0]), not one[1]))
        at = max(len(shared) - 1, 0)
        if not at:
            return None, 0, "root"
        if is_other:
            return shared[-1].row, at, "tools"
        # the template alone stands in the way where a turn was matched and only users and tools speak behind it
        turns = [i for i, node in enumerate(path) if node.end is not None]
        kept = turns and all(message.role in ("user", "tool") for message in messages[turns[-1] :])
        return shared[-1].row, at, "template" if kept and messages[turns[-1] :] else "history"


def _walk(root: _Node | None, messages: tuple[Message, ...]) -> tuple[list[_Node], tuple[Message, ...]]:
    """The nodes of the longest beginning of the messages that is known, from the root on, and the messages behind it."""
    if root is None:
        return [], messages
    path = [root]
    for i, message in enumerate(messages):
        found = path[-1].children.get(message)
        if found is None:
            return path, messages[i:]
        path.append(found)
    return path, ()
