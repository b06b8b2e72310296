"""All checks of one recipe, in the order in which a run needs their subjects. A failed check stops only those that
depend on it.

`RecipeCheck.findings` yields each answer as soon as it is known: machine, rows, model, verifiers with their golds, repeated and
leaked rows, prompts, token counts, batches, costs. Tokens are counted in a second thread while the verifiers run. The functions
above the class look at rows alone.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

from grpo_cli.data.audit import THRESHOLD, Corpus, GoldAudit, Pair, refuse_shown
from grpo_cli.data.rows import Row, none_fits
from grpo_cli.data.sources import Which
from grpo_cli.data.suspects import (
    MOST_COPIES,
    MOST_EXPOSURE,
    RowSignals,
    count_copies,
    find_contradictions,
    gold_of_row,
)
from grpo_cli.data.template import column_or_template, parse
from grpo_cli.errors import SetupError, UserError
from grpo_cli.jobs.check.cost import Machine, check_costs, refused
from grpo_cli.jobs.check.episodes import Beginnings, check_episodes, check_repeats
from grpo_cli.jobs.check.findings import CheckFinding, Level, failed
from grpo_cli.jobs.check.model import check_model
from grpo_cli.jobs.check.prompts import (
    PromptLengths,
    check_images,
    check_lengths,
    check_prompts,
    refuse_lengths,
    refuse_tokenizer,
)
from grpo_cli.jobs.check.reading import CheckedRows, read_rows, spread_parts
from grpo_cli.jobs.check.tokens import PromptMaker, UnknownTokens, full_prompt_maker, prompt_maker
from grpo_cli.jobs.check.verifiers import check_verifiers
from grpo_cli.jobs.refusals import sources
from grpo_cli.jobs.rows import as_held_out, prompt_limit
from grpo_cli.policy.loading.adapter import base_of, saved_rank
from grpo_cli.policy.loading.files import model_files
from grpo_cli.policy.loading.sizes import ModelSizes, full_sizes, read_sizes
from grpo_cli.policy.prompts.prompt import CLOCK
from grpo_cli.preference.file import FilePair, no_pair_fits, pairs_of_rows, read_pair_lines
from grpo_cli.recipe.arithmetic import STUCK_HINT, BatchPlan, plan, stuck_weights, unreached
from grpo_cli.recipe.beside import ALONE_HINT, trained_on_alone
from grpo_cli.recipe.reading.dump import stage_folder, stage_recipe
from grpo_cli.recipe.sections.recipe import Recipe, Source, chat_options
from grpo_cli.sizing.fit import CardQuestion
from grpo_cli.text import visible

# Rows that a run could memorise, and questions with two golds: the cheap part of `grpo audit data`.

SHOWN = 3
HINT = "`grpo audit data` looks at each row, with the model too"


def check_exposure(rows: Sequence[Row], draws: int) -> CheckFinding:
    """Whether some question gets a large share of the rows that a run draws; a sample of the rows represents all."""
    copies = count_copies(rows)
    exposed = RowSignals(copies, [], []).exposed(draws)
    most = max(copies)
    repeated = sum(n > MOST_COPIES for n in copies)
    data = {"draws": draws, "most_copies": most, "repeated": repeated, "exposed": len(exposed)}
    said = f"; {repeated:,} rows ask a question that comes more than {MOST_COPIES} times" if repeated else ""
    if not exposed:
        share = f"no question gets {MOST_EXPOSURE:.0%} of {draws:,} draws"
        return CheckFinding("exposure", Level.NOTE if repeated else Level.OK, share + said, data=data)
    first = max(exposed, key=lambda row: copies[row])
    text = f"one question gets {copies[first] / len(rows):.0%} of {draws:,} draws{said}"
    return CheckFinding(
        "exposure",
        Level.WARN,
        text,
        (f"{rows[first].place}: {visible(rows[first].prompt[:80])}",),
        data,
        hint=f"a run can learn such a row by heart, right or wrong: more rows, or fewer steps; {HINT}",
    )


def check_contradictions(rows: Sequence[Row], seen: str) -> Iterator[CheckFinding]:
    """Questions that occur twice with different golds."""
    found = find_contradictions(rows)
    data = {"rows": len(rows), "contradictions": len(found)}
    if not found:
        yield CheckFinding("two golds", Level.OK, f"no question of {seen} has two golds", data=data)
        return
    lines = tuple(
        " and ".join(f"{rows[i].place} says {visible(gold_of_row(rows[i].fields) or '')[:40]}" for i in same[:3])
        for same in found[:SHOWN]
    )
    text = f"{len(found):,} questions of {seen} have two golds or more"
    yield CheckFinding("two golds", Level.WARN, text, lines, data, hint=f"one of them is wrong; {HINT}")


# Rows that repeat each other, and held-out rows that the training rows contain.

SHOWN_LIKENESSES = 3


def check_likeness(train: Sequence[Row], held_out: Sequence[Row] | None, seen: str) -> Iterator[CheckFinding]:
    """Duplicates in the training rows, and overlap with held-out rows; `seen` names the rows that were read."""
    corpus = Corpus(train)
    exact, near, said = _split(corpus.duplicates())
    data = {"rows": len(train), "exact": len(exact), "near": len(near), "threshold": THRESHOLD}
    if said:
        yield CheckFinding("duplicates", Level.NOTE, f"{said} of {seen}", _lines(near), data)
    else:
        yield CheckFinding("duplicates", Level.OK, f"none in {seen}", data=data)
    if held_out is None:
        yield CheckFinding(
            "overlap", Level.NOTE, "no held-out rows: gains will be seen on training rows only", hint="add `data.eval`"
        )
        return
    exact, near, said = _split(corpus.overlap(held_out))
    data = {"held_out": len(held_out), "exact": len(exact), "near": len(near), "threshold": THRESHOLD}
    if said:
        yield CheckFinding(
            "overlap",
            Level.WARN,
            f"{said} of {len(held_out):,} held-out rows stand among {seen}",
            _lines(exact or near),
            data,
            hint="leave them out of one side, or held-out scores measure memory",
        )
    else:
        yield CheckFinding(
            "overlap", Level.OK, f"none of {len(held_out):,} held-out rows stands among {seen}", data=data
        )


def _split(pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair], str]:
    """Equal and nearly equal pairs, with their numbers, in words."""
    exact, near = [p for p in pairs if p.is_exact], [p for p in pairs if not p.is_exact]
    parts = [f"{len(exact):,} exact"] * bool(exact) + [f"{len(near):,} near"] * bool(near)
    return exact, near, " and ".join(parts)


def _lines(pairs: Sequence[Pair]) -> tuple[str, ...]:
    return tuple(f"{p.second.place} is {p.similarity:.0%} like {p.first.place}" for p in pairs[:SHOWN_LIKENESSES])


LATER_ROWS = 1_000
"""Number of rows that are read for each stage after the first."""
GOLDS_S = 0.7
"""Seconds after which only a sample of a split's golds is verified; programs take milliseconds each."""


TOKENS_S = 1.0
"""The same limit for token counts, which run in parallel with the other checks."""


@dataclass
class RecipeCheck:
    """The check of one recipe; `findings()` yields each result as soon as it is known."""

    whole: Recipe
    base: Path | None
    most: int = 10_000
    is_full: bool = False
    all_golds: bool = False
    ask: CardQuestion | None = None
    """The cards that a person asks about, or those of this machine."""
    is_stdin: bool = False
    """Whether the recipe came on stdin, which only one process can read."""
    sample_row: Row | None = None
    _train: CheckedRows | None = field(default=None, init=False)
    _held_out: CheckedRows | None = field(default=None, init=False)
    _audit: GoldAudit | None = field(default=None, init=False)
    _canary: Sequence[Row] = field(default=(), init=False)
    _begun: Beginnings = field(default_factory=Beginnings, init=False)

    @cached_property
    def machine(self) -> Machine:
        """Where the recipe would run."""
        return Machine(self.whole, self.ask, self.is_stdin)

    @cached_property
    def recipe(self) -> Recipe:
        """What is trained first: the recipe, or its first stage. For other stages only machine and rows are checked."""
        if self.whole.stages is None:
            return self.whole
        return stage_recipe(self.whole, 0, start=None, folder=Path(self.whole.run.dir), base=self.base)

    def findings(self) -> Iterator[CheckFinding]:
        """The results of all checks; the same message from several checks or stages is reported once."""
        said = set[str]()
        for finding in chain(self._findings(), self._later_stages()):
            is_wrong = finding.level in (Level.FAIL, Level.WARN)
            if not is_wrong or finding.message not in said:
                yield finding
            if is_wrong:
                said.add(finding.message)

    def _later_stages(self) -> Iterator[CheckFinding]:
        """The findings of the stages after the first, with the recipe's model in place of the weights that they start
        from."""
        stages = self.whole.stages or ()
        for at in range(1, len(stages)):
            recipe = stage_recipe(self.whole, at, start=None, folder=Path(self.whole.run.dir), base=self.base)
            most = self.most if self.is_full else min(self.most, LATER_ROWS)
            later = RecipeCheck(recipe, self.base, most, self.is_full, self.all_golds, self.ask, self.is_stdin)
            unwritten = tuple(stage_folder(i, one) for i, one in enumerate(stages[:at]))
            for finding in later._findings():
                is_wrong = finding.level in (Level.FAIL, Level.WARN)
                if is_wrong and not any(folder in finding.message for folder in unwritten):
                    yield replace(finding, check=f"{stages[at].name}: {finding.check}")

    def _findings(self) -> Iterator[CheckFinding]:
        yield from self.machine.findings()
        self._train = yield from self._read("train")
        if self.recipe.data.eval is not None:
            self._held_out = yield from self._read("eval")
        if self._train is not None:
            self.sample_row = self._train.rows[0]
        yield from refused(sources(self.whole, self.base))  # of the stages too, which are not read
        yield from _shown(self.recipe, self.base, self._train, self._held_out, self.most)
        yield from check_model(self.recipe, is_full=self.is_full)
        try:
            whole = base_of(self.recipe.model, 0).model
        except UserError:  # `model` says so
            sizes = None
        else:
            sizes = full_sizes(whole) if self.is_full else read_sizes(whole, model_files(whole))
        with ThreadPoolExecutor(1) as beside:  # the tokenizer runs outside Python and does not block this thread
            # prompts contain the environment's first message, which is known only after it was started
            counting = beside.submit(self._count) if self.recipe.environment is None else None
            budget_s = None if self.is_full or self.all_golds else GOLDS_S
            rows = {which: read.rows for which, read in self._splits.items()}
            self._audit, self._canary = yield from check_verifiers(self.recipe, self.base, rows, budget_s)
            yield from self._likeness()
            prompts = list(self._prompts(sizes))
            yield from prompts
            lengths = None
            if not any(finding.level is Level.FAIL for finding in prompts):
                finding, lengths = self._tokens(sizes, counting)
                yield finding
                if self.recipe.data.images and self._rows_read:
                    yield check_images(self.maker, self._rows_read)
        if self.recipe.prefer is not None and self.recipe.prefer.data is not None and self._train is not None:
            yield from self._pairs(self.recipe.prefer.data, self._train, sizes.context if sizes else None)
        yield from self._batches(sizes, lengths)
        # weights that the rate cannot move, and what groups of wrong answers would be trained on for want of an outcome
        if stuck := stuck_weights(self.recipe, adapter=saved_rank(self.recipe.model) is not None):
            yield CheckFinding("precision", Level.WARN, stuck, hint=STUCK_HINT)
        for alone in trained_on_alone(self.recipe):
            yield CheckFinding("alive_by", Level.WARN, alone, hint=ALONE_HINT)
        # last, for it imports TRL, which takes seconds
        yield from self.machine.trainer(self.recipe) if self.is_full or self.recipe.train.trl else ()

    def _pairs(self, source: Source, train: CheckedRows, context: int | None) -> Iterator[CheckFinding]:
        """The file of `prefer.data`, compared with the rows if all of them were read."""
        try:
            lines = read_pair_lines(source, self.base)
            if not train.is_sample:
                pairs = pairs_of_rows(lines, train.rows, self._held_out.rows if self._held_out else [])
                self._refuse_pairs(source, train, pairs, context)
        except UserError as err:
            yield failed("prefer.data", err)
            return
        said = f"{len(lines):,} pairs of {len({line.prompt for line in lines}):,} rows"
        if train.is_sample:
            said += f"; whether they are training rows is unknown of {len(train.rows):,} rows looked at"
        yield CheckFinding("prefer.data", Level.UNKNOWN if train.is_sample else Level.OK, said)

    def _refuse_pairs(self, source: Source, train: CheckedRows, pairs: Sequence[FilePair], context: int | None) -> None:
        """Raises DataError if no pair fits the model's context; stops at the first that does."""
        if context is None:
            return
        with suppress(UnknownTokens, SetupError):  # `tokens` says so
            encode = self.maker.encodes.ids
            for pair in pairs:
                longest = max(map(len, encode([pair.chosen, pair.rejected], True)))
                if self.maker.counts([train.rows[pair.row]])[0] + longest + 1 <= context:  # and the end token
                    return
            raise no_pair_fits(source, context)

    def _read(self, which: Which) -> Generator[CheckFinding, None, CheckedRows | None]:
        try:
            found = read_rows(self.recipe.data, which, self.base, self.most)
        except UserError as err:
            yield failed(f"rows {which}", err)
            return None
        total = f"{'' if found.is_exact else 'more than '}{found.total:,} rows"
        how = f"; looked at {len(found.rows):,} ({found.how})" if found.is_sample else ""
        columns = ", ".join(found.rows[0].fields)
        data = {"total": found.total, "is_exact": found.is_exact, "n": len(found.rows), "how": found.how}
        lines = tuple(found.left_out)
        yield CheckFinding(f"rows {which}", Level.OK, f"{total}{how}; columns {columns}", lines, data)
        return found

    def _likeness(self) -> Iterator[CheckFinding]:
        if self._train is not None:
            held_out = self._held_out.rows if self._held_out else None
            if held_out is not None or self.recipe.data.eval is None:
                read = self._train
                more = "" if read.is_exact else "more than "
                of = f" of {more}{read.total:,}" if read.is_sample else ""
                seen = f"{len(read.rows):,}{of} training rows"
                yield from check_likeness(self._train.rows, held_out, seen)
                yield from check_contradictions(self._train.rows, seen)

    @property
    def _splits(self) -> dict[Which, CheckedRows]:
        both: dict[Which, CheckedRows | None] = {"train": self._train, "eval": self._held_out}
        return {which: read for which, read in both.items() if read is not None}

    @property
    def _rows_read(self) -> list[Row]:
        return [row for one in self._splits.values() for row in one.rows]

    @cached_property
    def maker(self) -> PromptMaker:
        """How the recipe's rows become prompts and tokens.

        Raises:
            UnknownTokens, SetupError: the tokenizer cannot be read.
        """
        make = full_prompt_maker if self.is_full else prompt_maker
        return make(self.recipe.model, chat_options(self.recipe), self.recipe.data.image_pixels)

    def _prompts(self, sizes: ModelSizes | None) -> Iterator[CheckFinding]:
        if not self._rows_read:
            return
        try:
            refuse_tokenizer(self.maker, self.recipe, sizes)
            prompts = check_prompts(self.maker, self._rows_read, self.recipe)
            yield prompts
            # if the chat template writes the date into prompts, they change from day to day
            if prompts.level is not Level.FAIL and (fix := self.maker.prompts.clock(self._rows_read)) is not None:
                yield CheckFinding("clock", Level.NOTE, CLOCK, hint=f"{fix}: then prompts stay the same")
            most_s = None if self.is_full else TOKENS_S
            rows = self._rows_read
            self._begun = yield from check_episodes(
                self.maker, rows, self.recipe, self.base, most_s, len(self._train.rows) if self._train else 0
            )
            self.sample_row = self._begun.first or self.sample_row
        except UnknownTokens:
            return  # `tokens` says so
        except UserError as err:
            yield failed("prompt", err)

    def _count(self) -> PromptLengths:
        rows = self._rows_read
        if not rows:
            raise UnknownTokens("no rows to count")
        counts, seen = list[int](), list[Row]()
        began = time.perf_counter()
        for part in spread_parts(rows):
            counts += self.maker.counts(part)
            seen += part
            if not self.is_full and time.perf_counter() - began > TOKENS_S:
                break
        return PromptLengths.of(counts, len(rows), rows=seen)

    def _tokens(
        self, sizes: ModelSizes | None, counting: Future[PromptLengths] | None
    ) -> tuple[CheckFinding, PromptLengths | None]:
        context = sizes.context if sizes else None
        held_out = self._held_out.rows if self._held_out else []
        lengths, why = None, ""
        try:
            try:
                lengths = counting.result() if counting is not None else self._begun.lengths or self._count()
            except UnknownTokens as err:
                why = str(err)
            refuse_lengths(lengths, self.recipe, context, held_out)
            self._refuse_canary(context)
        except UserError as err:
            return failed("tokens", err), lengths
        if lengths is None:
            return CheckFinding("tokens", Level.UNKNOWN, f"unknown: {why}", hint=self._hint()), None
        return check_lengths(lengths, self.recipe, context), lengths

    def _refuse_canary(self, context: int | None) -> None:
        """Raises DataError where no row of `monitor.canary` fits."""
        spec, rows = self.recipe.monitor.canary, self._canary
        limit = prompt_limit(as_held_out(self.recipe, spec), "eval", context) if spec is not None else None
        if limit is None or not rows:
            return
        with suppress(UnknownTokens):
            counts = self.maker.counts(rows)
            if min(counts) > limit:
                shortest = counts.index(min(counts))
                raise none_fits(rows[shortest], counts[shortest], limit)

    def _hint(self) -> str:
        return "" if self.is_full else "`--full` asks transformers"

    def _batches(self, sizes: ModelSizes | None, lengths: PromptLengths | None) -> Iterator[CheckFinding]:
        if self._train is None:
            return
        # the share of read rows with a bad gold: training leaves such rows out
        bad = 0.0
        if (audit := self._audit) is not None:
            bad = len(audit.dropped) / (len(audit.rows) + len(audit.dropped))
        try:
            batches: BatchPlan = plan(self.recipe, round(self._train.total * (1 - bad)))
        except UserError as err:
            yield failed("batches", err)
            return
        first, *rest = batches.text().splitlines()
        data = {
            "rows": batches.rows,
            "completions": batches.completions_step,
            "steps": batches.steps,
            "epochs": batches.epochs,
        }
        yield CheckFinding("batches", Level.OK, first, tuple(rest), data)
        yield from self.machine.parts(self.recipe, lengths.counts[-1] if lengths else 0)
        if batches.draws:
            yield check_exposure(self._train.rows, batches.steps * batches.prompts_step)
        if said := unreached(self.recipe, batches.steps, sizes.context if sizes else None):
            hint = "lower it, or let the run be longer"
            yield CheckFinding("lengths", Level.WARN, said[0], tuple(said[1:]), hint=hint)
        held_out = self._held_out.total if self._held_out else 0
        yield from check_costs(self.recipe, sizes, batches, lengths, self._hint(), self.ask, held_out)


def _shown(
    recipe: Recipe, base: Path | None, train: CheckedRows | None, held_out: CheckedRows | None, most: int
) -> Iterator[CheckFinding]:
    """What is trained on demonstrations: whether its rows can be read, and fill them."""
    phases = [(f"{name}[{i}]", one) for name in ("warmup", "sft") for i, one in enumerate(getattr(recipe, name) or ())]
    for check, phase in phases:
        read = train
        try:
            if phase.data is not None:
                read = read_rows(recipe.data.model_copy(update={"train": [phase.data]}), "train", base, most)
            if read is None:
                continue
            rows, kept_back = read.rows[: phase.limit], held_out.rows if held_out else ()
            refuse_shown(check, phase.data, [one.template for one in phase.demonstration], rows, kept_back)
        except UserError as err:
            yield failed(check, err)
            continue
        lines: tuple[str, ...] = ()
        level, hint = Level.OK, ""
        if rows and phase.demonstration:
            template = parse(phase.demonstration[0].template)
            first = template.fill(rows[0].fields)
            lines = (f"the first: {visible(first, 160)}",)
            # `data.answer` replaces the column of that name: what is imitated is then the gold alone, without its working
            gold = column_or_template(recipe.data.answer or "answer")
            if (
                phase.data is None
                and template.source == "{answer}"
                and gold.columns == ("answer",)
                and "|" in gold.source
            ):
                level = Level.WARN
                lines = (*lines, "`{answer}` is what `data.answer` makes of the column, the gold alone")
                hint = "`data.columns: {worked: '{answer}'}` keeps the column; then `demonstration: '{worked}'`"
        yield CheckFinding(check, level, f"demonstrations can be filled from {len(rows):,} rows", lines, hint=hint)
        if rows and phase.demonstration and not read.is_sample:
            yield from check_repeats(check, phase, len({row.question for row in rows}), "a higher `limit`")
