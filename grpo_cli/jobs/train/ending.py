"""How a run ends: the status in its manifest, the end card, and the outcome that the command turns into an exit code.

One function for each end: trained, paused, rolled back, failed (an interrupted one ends in `Job._end`). Rank 0 writes the status
first, then `finish` writes the report, calls the webhook and shows the card, and `outcome_of` waits for all ranks.
"""

from __future__ import annotations

import shlex
from contextlib import suppress

from grpo_cli.display.protocol import Display
from grpo_cli.display.webhook import tell_webhook
from grpo_cli.errors import Exit, TrainingError, UserError
from grpo_cli.findings.held_out import trusted_score
from grpo_cli.findings.run_data import arms_of, collect
from grpo_cli.jobs.report.page import write_report
from grpo_cli.jobs.train.alarm_actions import best_saved, best_valid_gold, roll_back
from grpo_cli.jobs.train.result import TrainResult
from grpo_cli.jobs.train.running import RunContext
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.resilience import checkpoint
from grpo_cli.run.folder import RunFolder
from grpo_cli.run.follow import is_shown_step
from grpo_cli.run.info import Card, Status
from grpo_cli.statistics.step import as_drawn
from grpo_cli.text import Json, score


def resume_hint(run: RunFolder) -> str:
    """The command that goes on from here."""
    return f"grpo train --resume {shlex.quote(str(run.path))}"


def mark_failed(run: RunFolder, err: UserError, recipe: Recipe, display: Display, *, tells: bool) -> None:
    """Record the failure in the run's folder. A process with `tells` also calls the webhook, and adds to the error how
    to continue."""
    with suppress(UserError):  # on a full disk show the original error, not this one
        run.log("error", err.render())
        run.update_manifest(status="failed", reason=str(err))
    saved = checkpoint.all_checkpoints(run.path / "checkpoints")
    if saved and tells:
        last = f"{saved[-1].path.name} is saved; once the cause is fixed `{resume_hint(run)}` goes on from it"
        err.hint = f"{err.hint}\n      {last}" if err.hint else last
    if tells:
        text = f"{run.name}: failed: {err}"
        tell_webhook(recipe.run.webhook, "failed", run, display, text, {"reason": str(err)})


def end_trained(running: RunContext, step: int, action: str | None) -> TrainResult:
    """The end of a complete run: at its last step, or where a rule stopped it."""
    status: Status = "stopped" if running.stop_rules.reason else "done"
    reason = running.stop_rules.reason or running.alarmed.reason or None
    running.folder.update_manifest(status=status, steps=step, reason=reason)
    finish(running, status, next_=f"grpo eval {running.folder.checkpoint_path(step)}", reason=reason or "")
    return outcome_of(running, step, Exit.BAR_MISSED if reason or action else Exit.OK, status)


def end_paused(running: RunContext, step: int) -> TrainResult:
    """The end of a process that stops so that a person can look; a resume continues from here."""
    hint = "resumed as it is, the run stops at new alarms only; with `monitor.on_alarm=warn` at none"
    running.display.note("warn", f"paused after step {step}", hint)
    return _ended(running, step, "paused", resume_hint(running.folder), action="pause")


def end_rolled_back(running: RunContext, step: int) -> TrainResult:
    """The end of a run whose result is its best checkpoint by the gold verifier; later steps are set aside.

    Training does not continue: randomness depends only on seed and step, so the same verifier would give the same
    result.

    Raises:
        TrainingError: no whole checkpoint of an evaluated step is left.
    """
    run, best = running.folder, 0
    if running.ranks.is_main:
        found = best_valid_gold(run.path / "checkpoints", running.trusted)
        if found is None:
            raise TrainingError("no checkpoint is left to roll back to", hint=resume_hint(run))
        best = found.step
        gone = roll_back(run, best)
        where = f"rolled back from step {step} to {found.path}, the best by the {'gold verifier' if running.recipe.monitor.gold else 'canary'}"
        aside = f"; {gone} later steps moved to *.abandoned" if gone else ""
        hint = "training on with the same verifier repeats those steps: fix it, then start from this checkpoint"
        running.display.note("warn", where + aside, hint)
    best = running.ranks.agreed(best)
    # later steps are set aside on disk too, and must not appear on the end card
    running.evaluations = [e for e in running.evaluations if e["step"] <= best]
    running.canaries = [c for c in running.canaries if c["step"] <= best]
    next_ = f"grpo eval {shlex.quote(str(run.checkpoint_path(best)))}"
    return _ended(running, best, "rolled_back", next_, action="roll_back", at=step)


def _ended(running: RunContext, step: int, status: Status, next_: str, action: str, **more: Json) -> TrainResult:
    alarmed = running.alarmed
    if running.ranks.is_main:
        running.folder.update_manifest(status=status, steps=step, **alarmed.acted(action, **more))
    finish(
        running,
        status,
        next_=next_,
        reason=alarmed.reason,
        evidence=alarmed.evidence,
        other=f"{resume_hint(running.folder)} --set monitor.on_alarm=warn",
    )
    return outcome_of(running, step, Exit.BAR_MISSED, status)


def finish(running: RunContext, status: Status, next_: str, **more: str) -> None:
    """Write the report, call the webhook, show the end card."""
    report = ""
    if running.ranks.is_main:
        if running.recipe.run.report and status != "interrupted":  # the sender of the signal may not wait for a webhook
            report = write_own_report(running.folder, running.display)
        seen = running.evaluations
        scores = [e.get("eval/pass@1") for e in (*seen[:1], *seen[-1:])]
        said = f", held-out pass@1 {score(scores[0])} → {score(scores[1])}" if len(seen) > 1 else ""
        told: dict[str, Json] = {"status": status, "before": scores[0] if scores else None}
        told["after"] = scores[-1] if len(seen) > 1 else None
        text = f"{running.folder.name}: {status}{said}"
        tell_webhook(running.recipe.run.webhook, "end", running.folder, running.display, text, told)
    run, stopwatch = running.folder, running.stopwatch
    for name, lines in running.printed().items():
        running.display.note("info", f"`verify.{name}` printed {lines:,} lines: train.log has the first of each sample")
    best = _best(running)
    running.display.finish(
        Card(
            status=status,
            wall_s=stopwatch.wall_s,
            history=tuple(as_drawn(m) for m in run.metrics() if is_shown_step(m)),
            evaluations=tuple(running.evaluations),
            device=running.device,
            best=str(best.path) if best else "",
            report=report,
            next=next_,
            **more,
            seconds={phase: s for phase, s in stopwatch.of(run).items() if phase != "total"},
        )
    )


def write_own_report(run: RunFolder, display: Display) -> str:
    """The path of a run's page; "" with a note where it cannot be written, which does not fail the run."""
    try:
        page = write_report(arms_of([collect(run)]), run.path / "report.html")
    except UserError as err:
        display.note("warn", f"no report was written: {err}", f"grpo report {shlex.quote(str(run.path))}")
        return ""
    return str(page)


def _best(running: RunContext) -> checkpoint.Checkpoint | None:
    """The checkpoint with the best held-out score; a note names a better step that was not saved. None if nothing was
    better than the start."""
    best = max(running.measured_whole, key=trusted_score, default=None)
    if best is None:
        return None
    saved = best_saved(running.folder.path / "checkpoints", running.measured_whole)
    scores = {e["step"]: trusted_score(e) for e in running.measured_whole}
    if saved is not None and scores[saved.step] == scores[best["step"]]:
        return saved
    if best["step"] == 0:
        return None
    instead = f"; the best of those saved is step {saved.step}" if saved else ""
    running.display.note(
        "warn",
        f"the best held-out score is that of step {best['step']}, which was not saved{instead}",
        hint="`run.save_every` as often as `eval.every` saves each step that is measured",
    )
    return saved


def outcome_of(running: RunContext, steps: int, code: Exit, status: Status) -> TrainResult:
    """The outcome of the run, when every rank has arrived."""
    running.ranks.wait()  # when one rank ends with a code above 0, torchrun kills the others
    measured = {m["step"]: m for m in running.evaluations}
    last = running.folder.checkpoint_path(steps)
    return TrainResult(
        running.folder,
        steps,
        before=measured.get(0),
        after=measured.get(steps) if steps else None,
        seconds=running.stopwatch.of(running.folder),
        code=code,
        checkpoint=last if last.is_dir() else None,
        status=status,
    )
