"""`grpo verify`: parse, call, print."""

from __future__ import annotations

import typer

from grpo_cli.commands import options
from grpo_cli.errors import UsageError


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
    )
    raise typer.Exit(run(plan, settings))
