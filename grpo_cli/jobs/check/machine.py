"""What `grpo train` would refuse on this machine: processes, packages, the engine, the run folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from grpo_cli.distributed.launch import choose_processes, gpu_count, meeting_settings
from grpo_cli.errors import UserError
from grpo_cli.jobs.check.findings import CheckFinding, Level, failed
from grpo_cli.jobs.refusals import Question, questions
from grpo_cli.recipe.arithmetic import batching
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.recipe.whole_batch import refuse_parts
from grpo_cli.rollout.vllm.server import NotUp, find_server
from grpo_cli.sizing.fit import CardQuestion, cards_of


@dataclass
class Machine:
    """Where a recipe would run: on the cards that a person names, else here."""

    recipe: Recipe
    ask: CardQuestion | None
    processes: int = 1
    """Of all machines together, once `findings` has looked."""
    on_gpu: bool = False

    def findings(self) -> Iterator[CheckFinding]:
        """One for each refusal of the run, none where all is well."""
        yield from self._launch()
        found = list(refused(questions(self.recipe, self.processes, on_gpu=self.on_gpu)))
        yield from found
        if not any(finding.check == "engine" for finding in found):
            yield from self._server()

    def parts(self, longest: int) -> Iterator[CheckFinding]:
        """Whether a step can be dealt out to the processes and their micro-batches; `longest` prompt in tokens."""
        if self.recipe.train.method != "rl":
            return
        try:
            batch = batching(self.recipe, longest, self.processes, on_gpu=self.on_gpu)
            refuse_parts(self.recipe, batch, self.processes)
        except UserError as err:
            yield failed("batches", err)

    def trainer(self) -> Iterator[CheckFinding]:
        """Whether TRL is the one that this was built for and takes the recipe's settings; imports it, which takes seconds."""
        if self.recipe.train.method != "rl" or self.is_elsewhere:
            return
        import torch

        from grpo_cli.train.trl_config import refuse_settings

        try:
            refuse_settings(self.recipe, self.processes, torch.device("cuda" if self.on_gpu else "cpu"))
        except UserError as err:
            yield failed("trainer", err)

    @property
    def is_elsewhere(self) -> bool:
        """Whether a person asks about the cards of another machine."""
        return self.ask is not None and not self.ask.cards.is_here

    def _launch(self) -> Iterator[CheckFinding]:
        if self.is_elsewhere:
            assert self.ask is not None
            self.on_gpu = True
            with suppress(UserError):  # `fit` says so
                self.processes = cards_of(self.recipe, self.ask.cards)
            return
        self.on_gpu = gpu_count() > 0
        try:
            nodes, here = choose_processes(self.recipe)
            self.processes = here * nodes.count
            meeting_settings(nodes)
        except UserError as err:
            yield failed("launch", err)

    def _server(self) -> Iterator[CheckFinding]:
        """Whether the vLLM server that the recipe names can feed the run, looked at once: training waits for it."""
        sample = self.recipe.sample
        if not sample.is_served:
            return
        try:
            find_server({**sample.vllm, "server_timeout": 0}, lambda waited, most: None)
        except NotUp as err:
            yield CheckFinding("engine", Level.UNKNOWN, str(err), hint=err.hint)
        except UserError as err:
            yield failed("engine", err)


def refused(asked: Iterable[Question]) -> Iterator[CheckFinding]:
    """A finding for each question whose answer is no."""
    for question in asked:
        try:
            question.ask()
        except UserError as err:
            yield failed(question.check, err)
