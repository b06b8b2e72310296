"""Every setting that shapes a prompt shapes it in every job: training, held-out evaluation, `grpo eval`, the probe, `grpo check`
and the warm-up get the token ids that transformers makes of the same settings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.display.choose import make_display
from grpo_cli.jobs.check.recipe import RecipeCheck
from grpo_cli.jobs.evaluate import measure_model
from grpo_cli.jobs.probe import run_probe
from grpo_cli.jobs.train.job import Job
from grpo_cli.measure.probe import ProbeSize
from grpo_cli.policy import coldstart
from grpo_cli.recipe.sections.recipe import Recipe
from grpo_cli.resilience.model_source import ModelSource
from grpo_cli.rollout.engine import Request
from grpo_cli.rollout.graph.engine import GraphEngine
from grpo_cli.rollout.transformers_engine import TransformersEngine
from grpo_cli.train.log_probs import LONGEST
from tests.builders.chat_models import CHATML, make_model, make_tokenizer
from tests.builders.workplaces import Told

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
TRAIN = [{"question": f"{i}+3=?", "answer": str(i + 3), "topic": "sums"} for i in range(4)]
HELD_OUT = [{"question": "40+5=?", "answer": "45", "topic": "sums"}]


@dataclass(frozen=True)
class Setting:
    """What a recipe says, and what transformers is given for the same prompts."""

    model: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, Any] = field(default_factory=dict)
    family: str = "qwen3"
    template: str | None = None
    args: dict[str, Any] = field(default_factory=dict)
    system: str | None = None
    tail: str = ""
    is_plain: bool = False

    def prompt(self, row: dict[str, Any]) -> list[int]:
        """The token ids of a row's prompt, by transformers alone."""
        tokenizer = make_tokenizer(self.family)
        if self.is_plain:
            return list(tokenizer(row["question"] + self.tail).input_ids)
        chat = [{"role": "system", "content": self.system}] if self.system else []
        chat.append({"role": "user", "content": row["question"]})
        more = {"chat_template": self.template} if self.template else {}
        text = tokenizer.apply_chat_template(
            chat, tools=row.get("tools"), add_generation_prompt=True, tokenize=False, **more, **self.args
        )
        return list(tokenizer(text + self.tail, add_special_tokens=False).input_ids)


OTHER = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}>> "
SETTINGS = {
    "as it is": Setting(),
    "model.chat_template": Setting(model={"chat_template": OTHER}, template=OTHER),
    "model.template_args": Setting(
        model={"template_args": {"enable_thinking": False}}, args={"enable_thinking": False}
    ),
    "train.trl.chat_template_kwargs": Setting(
        train={"trl": {"chat_template_kwargs": {"enable_thinking": False}}}, args={"enable_thinking": False}
    ),
    "model.tokenizer": Setting(model={"tokenizer": "OTHER"}, family="smollm"),
    "data.system": Setting(data={"system": "You do {topic}."}, system="You do sums."),
    "data.prefill": Setting(data={"prefill": "<think>\n{topic}: "}, tail="<think>\nsums: "),
    "data.plain": Setting(data={"plain": True, "prefill": "A: "}, is_plain=True, tail="A: "),
    "column tools": Setting(columns={"tools": [TOOL]}),
    "all together": Setting(
        model={"chat_template": CHATML + "{{ opener }}", "template_args": {"opener": "<|im_start|>me\n"}},
        data={"system": "Be brief.", "prefill": "So "},
        columns={"tools": [TOOL]},
        template=CHATML + "{{ opener }}",
        args={"opener": "<|im_start|>me\n"},
        system="Be brief.",
        tail="So ",
    ),
}


@contextmanager
def overheard(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[int]]]:
    """The prompts that engines are asked to go on from, and those of demonstrations."""
    heard: list[list[int]] = []
    with monkeypatch.context() as patched:
        for engine in (GraphEngine, TransformersEngine):
            own = engine.generate

            def generate(self: Any, requests: Sequence[Request], *args: Any, own: Any = own, **more: Any) -> Any:
                heard.extend(request.ids for request in requests)
                return own(self, requests, *args, **more)

            patched.setattr(engine, "generate", generate)
        supervise = coldstart.supervise

        def hear(model: Any, demonstrations: Any, *args: Any, **more: Any) -> float:
            heard.extend(demo.prompt_ids for demo in demonstrations)
            return supervise(model, demonstrations, *args, **more)

        patched.setattr(coldstart, "supervise", hear)
        yield heard


def recipe_of(setting: Setting, folder: Path) -> Recipe:
    make_model(folder / "tiny", "qwen3")
    make_tokenizer("smollm").save_pretrained(folder / "other")
    for name, rows in (("train", TRAIN), ("eval", HELD_OUT)):
        text = "".join(json.dumps({**row, **setting.columns}) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text)
    model = {"path": str(folder / "tiny"), **setting.model}
    if model.get("tokenizer"):
        model["tokenizer"] = str(folder / "other")
    return Recipe.model_validate(
        {
            "model": model,
            "data": {"train": "train.jsonl", "eval": "eval.jsonl", "prompt": "{question}", **setting.data},
            "verify": {"math": {}},
            "sample": {"prompts": 2, "group": 2, "max_tokens": 2},
            "train": {"steps": 2, "lr": 1e-4, **setting.train},
            "eval": {"samples": 1, "k": [1], "every": 2},
            "run": {"dir": str(folder / "runs"), "name": "r"},
            "monitor": {"kl": "off"},
        }
    )


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_all_jobs_ask_with_the_same_prompts(setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_CACHE", str(tmp_path / "cache"))
    recipe = recipe_of(setting, tmp_path)
    train = [setting.prompt({**row, **setting.columns}) for row in TRAIN]
    held_out = [setting.prompt({**row, **setting.columns}) for row in HELD_OUT]
    checked = RecipeCheck(recipe, tmp_path)
    levels = {finding.check: finding.level.value for finding in checked.findings()}
    # one of the templates opens no turn, which is warned of
    assert levels["prompt"] in ("ok", "warn") and levels["tokens"] == "ok"
    assert checked.maker.ids(checked._rows_read) == [*train, *held_out]
    with overheard(monkeypatch) as heard:
        run_probe(recipe, tmp_path, Told().display, ProbeSize(4, 1))
    assert sorted(heard) == sorted(train), "probe"
    with overheard(monkeypatch) as heard:
        measure_model(ModelSource(recipe.model.path, recipe, tmp_path, None), Told().display, seed=0)
    assert {tuple(ids) for ids in heard} == {tuple(ids) for ids in held_out}, "eval of a model by name"
    phase = {"demonstration": "{answer}", "steps": 1, "lr": 1e-4, "batch": 4}
    warmed = Recipe.model_validate({**recipe.model_dump(by_alias=True), "warmup": [phase]})
    with overheard(monkeypatch) as heard:
        Job(warmed, label="r", base=tmp_path, display=make_display("none")).run()
    first = train[0][-LONGEST:]  # with it and its half training and sampling are compared before the first step
    compared = {tuple(first), tuple(first[len(first) // 2 :])}
    wanted = {tuple(ids) for ids in [*train, *held_out]}
    asked = {tuple(ids) for ids in heard}
    assert wanted <= asked <= wanted | compared, "train"
    assert heard[:4] == train, "the warm-up comes first"
    with overheard(monkeypatch) as heard:
        folder = next((tmp_path / "runs" / "r" / "checkpoints").iterdir())
        measure_model(ModelSource("r", recipe, tmp_path, folder), Told().display, seed=0)
    assert {tuple(ids) for ids in heard} == {tuple(ids) for ids in held_out}, "eval of a checkpoint"
