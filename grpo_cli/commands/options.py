"""Arguments and options of the commands, by name: what several commands take is written, and helped with, once.

Each alias is an `Annotated` type with its help and completion; a command names it in its signature and adds the default. Typer
looks these aliases up when it reads a signature, so a command imports them at run time.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from grpo_cli.commands import completing

RecipePlace = Annotated[
    str,
    typer.Argument(
        help="A recipe file, the name of a shipped recipe, or - for stdin.", autocompletion=completing.recipes
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override one key; may be repeated.", autocompletion=completing.settings
    ),
]


def _trust(wanted: bool) -> bool:
    if wanted:
        from grpo_cli.recipe.named import TRUSTS

        os.environ[TRUSTS] = "1"
    return wanted


Trust = Annotated[
    bool, typer.Option("--trust", callback=_trust, help="Run code of a recipe that came with a model; read it first.")
]


def recipe_in(named: str | None) -> str | None:
    """The recipe of a run whose folder is named; any other name as it is."""
    return f"{Path(named, 'recipe.yaml')}" if named and Path(named, "run.json").is_file() else named


Face = Annotated[str, typer.Option(help="auto, live, plain, json or none.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one object on stdout.")]

# check and probe
Gpu = Annotated[
    str | None,
    typer.Option(metavar="CARD", help="Would it fit, how long: h100, 4090, 8xh200; left out, this machine's card."),
]
Price = Annotated[
    float | None, typer.Option(metavar="PRICE", help="What one card costs an hour; prints what the run would print.")
]

# train
RecipeOrOwn = Annotated[
    str | None,
    typer.Argument(
        help="A recipe file, the name of a shipped recipe, or - for stdin; with --resume RUN the run's own.",
        autocompletion=completing.recipes,
    ),
]
Resume = Annotated[
    str | None,
    typer.Option(
        "--resume",
        metavar="[RUN]",
        help="Continue this run (a folder or a name under runs/); without one the recipe's newest.",
        autocompletion=completing.runs,
    ),
]
ResumeAnyway = Annotated[
    bool,
    typer.Option(
        "--resume-anyway",
        help="Allow changed files, rows and prompts, and changed keys that do not touch the training itself.",
    ),
]
SummaryAsJson = Annotated[bool, typer.Option("--json", help="Print one summary object on stdout.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and what `grpo check` says, stop.")]

# eval
ModelPlace = Annotated[
    str, typer.Argument(help="A checkpoint, a run, a model folder or a hub id.", autocompletion=completing.runs)
]
MeasuringRecipe = Annotated[
    str | None, typer.Option(callback=recipe_in, help="The recipe to measure with; a checkpoint brings its own.")
]
EvalSets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one key, such as data.eval=FILE or eval.samples=8."),
]
Against = Annotated[str | None, typer.Option(metavar="OTHER", help="Measure this too and compare, paired by prompt.")]
EvalOut = Annotated[
    Path | None,
    typer.Option(help="Where the samples go; default eval.jsonl in the checkpoint, earlier ones set aside."),
]
EvalBy = Annotated[
    list[str] | None,
    typer.Option(
        "--by",
        metavar="COLUMN",
        help="Success by kind of row, as this column says; without it by `kind` and `difficulty`, where rows have them.",
    ),
]
EvalSeed = Annotated[int, typer.Option(help="Seed of sampling.")]
PassFloor = Annotated[float | None, typer.Option(help="Exit 1 if pass@1 is below this.")]

# probe
Prompts = Annotated[
    int | None, typer.Option("--prompts", "-n", min=1, help="Training prompts; default `gate.n`, else 64.")
]
Samples = Annotated[int | None, typer.Option(min=2, max=256, help="Samples of each; default `gate.samples`, else 8.")]
ProbeSeed = Annotated[int | None, typer.Option(help="Seed of choosing and sampling; default `train.seed`.")]
ProbeOut = Annotated[Path | None, typer.Option(help="Write the samples here, as `grpo verify` reads them.")]

# verify
Files = Annotated[list[str], typer.Argument(metavar="FILE|-", help="JSON lines, plain, .gz or .zst; `-` is stdin.")]
VerifyRecipe = Annotated[
    str | None,
    typer.Option(
        "--recipe", callback=recipe_in, help="Use the verifiers of this recipe.", autocompletion=completing.recipes
    ),
]
Math = Annotated[bool, typer.Option("--math", help="Compare the boxed answer with the gold.")]
Code = Annotated[bool, typer.Option("--code", help="Run the program against the row's tests.")]
Regex = Annotated[list[str] | None, typer.Option("--regex", metavar="PATTERN", help="Search for a pattern.")]
OtherKinds = Annotated[list[str] | None, typer.Option("--verifier", metavar="KIND", help="Any other verifier.")]
VerifierOptions = Annotated[
    list[str] | None, typer.Option("--option", metavar="[NAME.]K=V", help="Set an option of a verifier.")
]
Weights = Annotated[
    list[str] | None, typer.Option("--weight", metavar="NAME=W", help="Weight of a verifier in the reward.")
]
Primary = Annotated[str | None, typer.Option("--primary", metavar="NAME", help="Whose verdict is the outcome.")]
CompletionKey = Annotated[str | None, typer.Option("--completion-key", metavar="KEY", help="Field of the completion.")]
AnswerKey = Annotated[str | None, typer.Option("--answer-key", metavar="KEY", help="Field of the gold answer.")]
PromptKey = Annotated[str | None, typer.Option("--prompt-key", metavar="KEY", help="Field of the prompt.")]
GoldRowsFile = Annotated[
    str | None, typer.Option("--rows", metavar="FILE", help="Rows with the golds, joined by id, `custom_id` or prompt.")
]
GroupKey = Annotated[str | None, typer.Option("--group-key", metavar="KEY", help="Field that names the group.")]
Order = Annotated[
    Literal["auto", "contiguous", "scattered"], typer.Option(help="Whether a group's lines stand together.")
]
ScoredOut = Annotated[str | None, typer.Option("--out", metavar="FILE", help="Write scored lines here, not to stdout.")]
OnlySummary = Annotated[bool, typer.Option("--json", help="Print one summary object on stdout; lines need --out.")]
Stream = Annotated[bool, typer.Option("--stream", help="Answer every line at once, in order, flushed.")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Add what was read of gold and answer, and the rules that decided. Slow.")
]
ScoreFloor = Annotated[
    float | None, typer.Option("--fail-under", metavar="SCORE", help="Exit 1 if the mean score is below this.")
]
Processes = Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Processes; default one a core.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only errors on stderr.")]

# pairs
PairSources = Annotated[
    list[str],
    typer.Argument(metavar="RUN|FILE|RECIPE", help="A run, files of judged samples, or a recipe that draws them."),
]
PairRecipe = Annotated[
    str | None,
    typer.Option("--recipe", callback=recipe_in, help="The recipe that the samples must be of; a run brings its own."),
]
PairsARow = Annotated[int, typer.Option("--pairs-a-row", min=1, help="Most pairs of one row.")]
LengthGap = Annotated[
    float, typer.Option(min=0, max=1, help="How far the lengths of a pair may differ, as a share of the longer one.")
]
Since = Annotated[int, typer.Option(metavar="STEP", min=0, help="Of a run: leave out samples of earlier steps.")]
Unpaired = Annotated[bool, typer.Option(help="Write every usable answer with its label, as KTO takes them.")]
PairPrompts = Annotated[
    int | None, typer.Option("--prompts", "-n", min=1, help="Of a recipe: training prompts; default all.")
]
PairSamples = Annotated[int, typer.Option("--samples", min=2, max=4096, help="Of a recipe: samples of each.")]
PairsOut = Annotated[Path | None, typer.Option(help="Where the pairs go; default pairs.jsonl in the run or here.")]
