"""`grpo verify`: parse, call, print."""

from __future__ import annotations

from typing import Annotated, Literal

import typer


def verify(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE|-", help="JSON lines, plain, .gz or .zst; `-` is stdin.")
    ],
    recipe: Annotated[str | None, typer.Option("--recipe", help="Use the verifiers of this recipe.")] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one key of the recipe.")
    ] = None,
    math: Annotated[bool, typer.Option("--math", help="Compare the boxed answer with the gold.")] = False,
    code: Annotated[bool, typer.Option("--code", help="Run the program against the row's tests.")] = False,
    regex: Annotated[
        list[str] | None, typer.Option("--regex", metavar="PATTERN", help="Search for a pattern.")
    ] = None,
    verifier: Annotated[
        list[str] | None, typer.Option("--verifier", metavar="KIND", help="Any other verifier.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="[NAME.]K=V", help="Set an option of a verifier.")
    ] = None,
    weight: Annotated[
        list[str] | None,
        typer.Option("--weight", metavar="NAME=W", help="Weight of a verifier in the reward."),
    ] = None,
    primary: Annotated[
        str | None, typer.Option("--primary", metavar="NAME", help="Whose verdict is the outcome.")
    ] = None,
    completion_key: Annotated[
        str | None, typer.Option("--completion-key", metavar="KEY", help="Field of the completion.")
    ] = None,
    answer_key: Annotated[
        str | None, typer.Option("--answer-key", metavar="KEY", help="Field of the gold answer.")
    ] = None,
    prompt_key: Annotated[
        str | None, typer.Option("--prompt-key", metavar="KEY", help="Field of the prompt.")
    ] = None,
    group_key: Annotated[
        str | None, typer.Option("--group-key", metavar="KEY", help="Field that names the group.")
    ] = None,
    groups: Annotated[
        Literal["auto", "contiguous", "scattered"],
        typer.Option(help="Whether a group's lines stand together."),
    ] = "auto",
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write scored lines here, not to stdout.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one summary object on stdout; lines need --out.")
    ] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="Answer every line at once, in order, flushed.")
    ] = False,
    fail_under: Annotated[
        float | None,
        typer.Option("--fail-under", metavar="SCORE", help="Exit 1 if the mean score is below this."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Processes; default one a core.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only errors on stderr.")] = False,
) -> None:
    """Score a file of completions with the verifiers that train.

    Every line comes back with `verdicts`, `outcome` and `reward`; group statistics go to stderr.

    \b
    Examples:
      grpo verify samples.jsonl --math
      grpo verify runs/NAME/samples/*.jsonl --json
      generate | grpo verify - --regex '<think>.*</think>' --fail-under 0.9 --out scored.jsonl
    """
    from grpo_cli.jobs.verify.fields import Wanted
    from grpo_cli.jobs.verify.job import VerifySettings, run
    from grpo_cli.reward.plan import from_flags, from_recipe, recipe_beside

    kinds = [kind for kind, is_on in (("math", math), ("code", code)) if is_on] + list(verifier or [])
    has_flags = bool(kinds or regex)
    beside = None if has_flags or recipe else recipe_beside(files)
    if recipe or beside:
        from grpo_cli.errors import UsageError

        if has_flags:
            raise UsageError("`--recipe` and verifier flags together", hint="leave one of them out")
        plan = from_recipe(recipe or beside or "", sets or [])
    else:
        plan = from_flags(
            kinds, patterns=regex or [], options=option or [], weights=weight or [], primary=primary
        )
    settings = VerifySettings(
        files=files,
        wanted=Wanted(completion_key, answer_key, prompt_key, group_key),
        order=groups,
        out=out,
        as_json=as_json,
        stream=stream,
        fail_under=fail_under,
        jobs=jobs,
        quiet=quiet,
        note=f"verifiers of `{beside}`" if beside else "",
    )
    raise typer.Exit(run(plan, settings))
