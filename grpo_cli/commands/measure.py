"""Commands that measure before or after a run: `check`, `verify`, `audit`, `probe`, `eval`.

How this works: each parses its words, opens what it can before torch is imported, calls its job, and prints an object or a text. The
exit code is that of a bar that was missed where one was set.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grpo_cli.commands import options
from grpo_cli.commands.checking import run_check
from grpo_cli.commands.environment import pin_one_gpu, quiet_libraries
from grpo_cli.commands.opening import loading
from grpo_cli.errors import Exit, SetupError, TrainingError, UsageError, why_unwritten
from grpo_cli.text import strict_json

if TYPE_CHECKING:
    from grpo_cli.measure.evaluation import Evaluation


def check(
    recipe: options.RecipePlace,
    sets: options.Sets = None,
    trust: options.Trust = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Run every gold, load the tokenizer through transformers, and make TRL's settings."
        ),
    ] = False,
    most: Annotated[int, typer.Option(min=1, metavar="N", help="Look at about this many rows of each split.")] = 10_000,
    show: Annotated[
        bool, typer.Option("--show", help="Print the first prompt as the model gets it, token by token.")
    ] = False,
    gpu: options.Gpu = None,
    price: options.Price = None,
    as_json: options.AsJson = False,
) -> None:
    """Find what can be known of a run before a model is loaded.

    Asks launcher, engine, trackers and run folder what training asks them, and says what they refuse in the same words. Reads
    the rows, fills the templates, looks at the model's files and layers and at packages that are missing, puts every gold
    through its own verifier, looks for repeated and leaked rows, renders the prompts and counts their tokens, and does
    the arithmetic of batches, memory and time. Of a card that is named, or is here, it says whether the run fits, how long
    it takes and, with `--price`, what it costs. Exit 1: a warning stands. Exit 2, 3 or 4: the
    recipe, the data or this machine cannot do it.

    \b
    Examples:
      grpo check quickstart
      grpo check my.yaml --show
      grpo check my.yaml --gpu h100 --price 2.5
      grpo check my.yaml --set data.train=other.jsonl --json
    """
    from grpo_cli.jobs.check.recipe import RecipeCheck
    from grpo_cli.recipe.reading.load import load_with_folder
    from grpo_cli.resilience.checkpoint import pinned
    from grpo_cli.sizing.fit import ask_of

    ask = ask_of(gpu, price)
    loaded, base = load_with_folder(recipe, sets or [])
    checked = RecipeCheck(pinned(loaded), base, most, full, ask=ask, is_stdin=recipe == "-")
    raise typer.Exit(int(run_check(checked, recipe, as_json=as_json, shows=show)))


def verify(
    files: options.Files,
    recipe: options.VerifyRecipe = None,
    sets: options.Sets = None,
    trust: options.Trust = False,
    math: options.Math = False,
    code: options.Code = False,
    regex: options.Regex = None,
    verifier: options.OtherKinds = None,
    option: options.VerifierOptions = None,
    weight: options.Weights = None,
    primary: options.Primary = None,
    completion_key: options.CompletionKey = None,
    answer_key: options.AnswerKey = None,
    prompt_key: options.PromptKey = None,
    group_key: options.GroupKey = None,
    rows: options.GoldRowsFile = None,
    groups: options.Order = "auto",
    out: options.ScoredOut = None,
    as_json: options.OnlySummary = False,
    stream: options.Stream = False,
    explain: options.Explain = False,
    fail_under: options.ScoreFloor = None,
    jobs: options.Processes = None,
    quiet: options.Quiet = False,
) -> None:
    """Score a file of completions with the verifiers that train.

    Every line comes back with `verdicts`, `outcome` and `reward`; group statistics go to stderr.

    \b
    Examples:
      grpo verify samples.jsonl --math --fail-under 0.9
      grpo verify batch_output.jsonl --math --rows rows.jsonl
      grpo verify runs/NAME/samples/*.jsonl --json
      grpo verify samples.jsonl --math --explain | jq .verdicts.math.explained
      generate | grpo verify - --regex '<think>.*</think>' --out scored.jsonl
    """
    from grpo_cli.jobs.verify.fields import WantedKeys
    from grpo_cli.jobs.verify.job import VerifySettings, run
    from grpo_cli.reward.plan import from_flags, from_recipe, recipe_beside

    kinds = [kind for kind, is_on in (("math", math), ("code", code)) if is_on] + list(verifier or [])
    if recipe and (kinds or regex):
        raise UsageError("`--recipe` and verifier flags together", hint="leave one of them out")
    beside = None if kinds or regex or recipe else recipe_beside(files)
    if not (kinds or regex or recipe or beside):
        from grpo_cli.jobs.verify.job import proposal

        raise UsageError("no verifier", hint=proposal(files[0], rows))
    if source := recipe or beside:
        plan = from_recipe(source, sets or [])
    else:
        plan = from_flags(kinds, patterns=regex or [], options=option or [], weights=weight or [], primary=primary)
    settings = VerifySettings(
        files=files,
        wanted=WantedKeys(completion_key, answer_key, prompt_key, group_key),
        order=groups,
        out=out,
        as_json=as_json,
        stream=stream,
        fail_under=fail_under,
        jobs=jobs,
        quiet=quiet,
        note=f"verifiers of `{beside}`" if beside else "",
        rows=rows,
        explains=explain,
    )
    raise typer.Exit(run(plan, settings))


audit = typer.Typer(no_args_is_help=True, help="Attack what a run rests on: the reward, the rows.")


@audit.callback()
def _root() -> None:
    """Attack what a run rests on before the run does."""


@audit.command("verifier")
def verifier(
    kinds: Annotated[
        list[str] | None, typer.Argument(metavar="[KIND]…", help="Kinds to audit on built-in rows.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option("--recipe", callback=options.recipe_in, help="Audit this recipe's verifiers on its own rows."),
    ] = None,
    sets: options.Sets = None,
    trust: options.Trust = False,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows of the recipe to audit on.")] = 50,
    gold: Annotated[
        str | None,
        typer.Option(
            "--gold",
            metavar="TEMPLATE",
            help="A right completion, such as 'It is {answer}', where a verifier has none.",
        ),
    ] = None,
    fail_over: Annotated[
        float | None, typer.Option("--fail-over", metavar="RATE", help="Exit 1 if a rate of failures is above this.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Try attacks and harmless rewrites on verifiers.

    It counts false positives and false negatives, with intervals.

    \b
    Examples:
      grpo audit verifier math
      grpo audit verifier --recipe my.yaml --rows 200 --fail-over 0.01
    """
    from grpo_cli.jobs.audit.verifier import SCHEMA, audit_kinds, audit_recipe

    if bool(kinds) == bool(recipe):
        raise UsageError("name kinds or a recipe", hint="`grpo audit verifier math` or `--recipe FILE`")
    found = audit_recipe(recipe, sets or [], rows, gold) if recipe else audit_kinds(kinds or [])
    if as_json:
        body: dict[str, Any] = {"schema": SCHEMA, "verifiers": {one.name: one.as_json() for one in found}}
        print(strict_json(body))
    else:
        print("\n\n".join(one.text() for one in found))
    is_over = fail_over is not None and any(one.worst_rate > fail_over for one in found)
    raise typer.Exit(int(Exit.BAR_MISSED if is_over else Exit.OK))


@audit.command("data")
def data(
    recipe: options.RecipePlace,
    sets: options.Sets = None,
    trust: options.Trust = False,
    rows: Annotated[
        int, typer.Option("--rows", min=0, help="Rows that the model is asked about; 0: the data alone.")
    ] = 256,
    samples: Annotated[int, typer.Option(min=2, max=64, help="Samples of each.")] = 8,
    seed: options.ProbeSeed = None,
    display: options.Face = "auto",
    as_json: options.AsJson = False,
) -> None:
    """Rank the training rows by how odd they are.

    Odd is what is repeated, contradicting, or against what the model and the other rows say. No row is called poisoned: each is shown with what was seen. Exit 1: a row is past a bar.

    \b
    Examples:
      grpo audit data quickstart
      grpo audit data my.yaml --rows 0
      grpo audit data my.yaml --json | jq .ranked[0]
    """
    from grpo_cli.display.choose import make_display
    from grpo_cli.recipe.reading.load import load_with_folder

    checked, base = load_with_folder(recipe, sets or [])
    quiet_libraries()
    pin_one_gpu()
    with loading("audit"):
        from grpo_cli.jobs.audit.data import audit_data
    with closing(make_display(display)) as shown:
        found = audit_data(checked, base, shown, asked=rows, samples=samples, seed=seed)
    print(strict_json(found.as_json()) if as_json else found.text())
    raise typer.Exit(int(Exit.BAR_MISSED if found.flags() else Exit.OK))


def probe(
    recipe: options.RecipePlace,
    sets: options.Sets = None,
    trust: options.Trust = False,
    prompts: options.Prompts = None,
    samples: options.Samples = None,
    seed: options.ProbeSeed = None,
    out: options.ProbeOut = None,
    gpu: options.Gpu = None,
    price: options.Price = None,
    display: options.Face = "auto",
    as_json: options.AsJson = False,
) -> None:
    """Sample the model before training: what would it learn from?

    Pass rates, outcomes, what is cut off, how many groups would be dead at each group size, the size that would pay,
    and examples of each failure. With `--gpu` also whether the run fits that card, how long it takes and what it costs, by the
    lengths that were drawn; a step is measured where such a card is here. With a `gate` in the recipe: go or no-go. Exit 1: no-go.

    \b
    Examples:
      grpo probe quickstart
      grpo probe my.yaml -n 32 --samples 16
      grpo probe my.yaml --gpu h100 --price 2.5
      grpo probe my.yaml --set 'gate.pass@1=[0.05, 0.9]' --json | jq .go
    """
    from grpo_cli.display.choose import make_display
    from grpo_cli.jobs.open_job import open_first
    from grpo_cli.recipe.reading.load import load_with_folder
    from grpo_cli.recipe.sections.recipe import Gate
    from grpo_cli.resilience.checkpoint import pinned
    from grpo_cli.run.lines import refuse_unwritable
    from grpo_cli.run.records import dump_line
    from grpo_cli.sizing.fit import ask_of

    ask = ask_of(gpu, price) if gpu is not None or price is not None else None
    loaded, base = load_with_folder(recipe, sets or [])
    checked = pinned(loaded)
    refuse_unwritable(out)
    quiet_libraries()
    pin_one_gpu()
    with open_first(checked, base, ["train"]) as first:
        with loading("probe"):
            from grpo_cli.jobs.probe import lines_of, run_probe
            from grpo_cli.measure.gate import bars, probe_object
            from grpo_cli.measure.probe import ProbeSize
        size = ProbeSize.of(checked.gate or Gate())
        size = ProbeSize(prompts or size.prompts, samples or size.samples)
        with closing(make_display(display)) as shown:
            probed = run_probe(checked, base, shown, size, seed, ask, first)
    found = probed.run
    if out is not None:
        from grpo_cli.run.lines import write_records

        try:
            write_records(out, found.records)
        except OSError as err:
            raise SetupError(f"cannot write the samples: {why_unwritten(err)}", place=str(out)) from err
    if as_json:
        print(dump_line(probe_object(found, checked.gate) | probed.asked_json()), end="")
    else:
        print("\n".join(lines_of(probed, checked.gate, checked.model.path, checked.sample.temperature)))
    missed = checked.gate is not None and not all(bar.is_met for bar in bars(found.probe, checked.gate))
    raise typer.Exit(int(Exit.BAR_MISSED if missed else Exit.OK))


def evaluate(
    checkpoint: options.ModelPlace,
    recipe: options.MeasuringRecipe = None,
    sets: options.EvalSets = None,
    trust: options.Trust = False,
    against: options.Against = None,
    out: options.EvalOut = None,
    by: options.EvalBy = None,
    seed: options.EvalSeed = 0,
    fail_under: options.PassFloor = None,
    display: options.Face = "auto",
    as_json: options.AsJson = False,
) -> None:
    """Measure a model's pass@1, pass@k and maj@k on held-out rows.

    \b
    Examples:
      grpo eval runs/1127-quickstart-k3f9
      grpo eval runs/A --against runs/B
      grpo eval Qwen/Qwen2.5-0.5B-Instruct --recipe gsm8k-qwen2.5-0.5b
    """
    from grpo_cli.display.choose import make_display
    from grpo_cli.jobs.open_job import open_first
    from grpo_cli.policy.loading.inspection import refuse_flaws
    from grpo_cli.resilience.model_source import find_model_source, model_of
    from grpo_cli.run.lines import refuse_unwritable

    source = find_model_source(checkpoint, recipe, sets or [])
    other = find_model_source(against, recipe, sets or []) if against else None
    if other is not None:
        refuse_flaws(model_of(other), trains=False)
    path = out or (source.folder / "eval.jsonl" if source.folder else None)
    refuse_unwritable(path)
    quiet_libraries()
    pin_one_gpu()
    with open_first(source.recipe, source.base, ["eval"], model_of(source)) as first:
        with loading("eval"):
            from grpo_cli.jobs.evaluate import as_object, by_kind, compare, comparison, measure_model, table
        with closing(make_display(display)) as shown:
            found = measure_model(source, shown, seed, by=by or [], first=first)
            reference = measure_model(other, shown, seed, "evaluate other") if other else None
    paired = compare(reference, found) if reference else None
    kinds = by_kind(found.sampled, by or [])
    if as_json:
        print(strict_json(as_object(checkpoint, found, against, reference, paired, kinds)))
    else:
        compared = comparison(against or "", reference, paired) if paired else []
        print("\n".join(table(found, path, kinds) + compared))
    # last of all: a disk that is full takes the samples, not what was measured
    for earlier in _write(path, found, keeps=out is None) if path is not None else []:
        print(f"the samples that were there are in {earlier}", file=sys.stderr)
    if found.sampled.pass_1.n == 0 and (failed := found.failures.commonest):
        raise TrainingError(f"no held-out sample got a verdict: {failed[0]}", hint="`grpo check` tries the verifiers")
    if fail_under is not None and found.sampled.pass_1.mean < fail_under:
        raise typer.Exit(int(Exit.BAR_MISSED))


def _write(path: Path, found: Evaluation, *, keeps: bool) -> list[Path]:
    """Write the samples; `keeps` what lay there under a name of its own, and returns these names."""
    from grpo_cli.run.lines import set_aside, write_records

    files = {path: found.sampled.records}
    if found.greedy is not None:
        files[path.with_suffix(".greedy.jsonl")] = found.greedy.records
    aside: list[Path] = []
    try:
        for file, records in files.items():
            earlier = set_aside(file) if keeps else None
            aside += [earlier] if earlier is not None else []
            write_records(file, records)
    except OSError as err:
        raise SetupError(
            f"cannot write the samples: {why_unwritten(err)}", place=str(path), hint="set `--out`"
        ) from err
    return aside
