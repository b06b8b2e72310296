from pathlib import Path

import pytest

from grpo_cli.errors import RecipeError
from grpo_cli.recipe.reading.load import load

BASE = 'model: some/model\ndata: {train: a.jsonl, prompt: "{question}"}\nverify: {math: {}}\ntrain: {steps: 10}\n'


PREFER = ("train.method=prefer",)
PAIRS = (*PREFER, "prefer.data=pairs.jsonl")
KEEP = ("train.dead_groups=keep",)
FORM = ("verify.form={kind: exact, weight: 0.5}",)
AGREES = ("verify.agrees={}", "train.reward_combine=split")
PARTS = "train.split={task: {verifiers: [math]}, consistency: {verifiers: [agrees]}}"
SPLIT = (*AGREES, PARTS)
NORMALISED = ("train.reward_combine=normalise_then_sum", "verify.w={kind: exact, weight: 0.5}")


def mistakes(tmp_path: Path, *sets: str) -> list[str]:
    file = tmp_path / "r.yaml"
    file.write_text(BASE)
    try:
        load(file, sets)
    except RecipeError as err:
        return [m.message for m in err.mistakes]
    return []


@pytest.mark.parametrize(
    ("sets", "part"),
    [
        (["sample.group=1"], "a group of 1 is its own mean"),
        (["train.algorithm=ppo", "sample.group=1", "train.control=shuffled"], "a group of one keeps its own"),
        (["prefer.loss=dpo"], "no effect with `train.method: rl`"),
        ([*PREFER, "train.algorithm=gspo"], "`train.algorithm` has no effect with `method: prefer`"),
        ([*PREFER, "train.inner_epochs=2"], "`train.inner_epochs` has no effect"),
        ([*PREFER, "train.control=random"], "pairs are made of verdicts"),
        ([*PREFER, "train.trl.adam_beta1=0.8"], "GRPO's trainer"),
        ([*PREFER, "sample.engine=vllm"], "through TRL's GRPO trainer"),
        ([*PREFER, "launch.cpu_ranks=2"], "runs in one process"),
        ([*PREFER, "prefer.gamma=0.5"], "belongs to `loss: simpo`"),
        ([*PREFER, "prefer.loss=kto", "prefer.sft=1"], "goes with `dpo`, `ipo` and `irpo`"),
        ([*PREFER, "prefer.loss=irpo", "prefer.sft=0"], "without `sft` is `dpo`"),
        ([*PREFER, "prefer.loss=simpo", "prefer.beta=0.1"], "is a value for DPO"),
        ([*PREFER, "prefer.micro_batch=5"], "does not divide `prefer.batch` 32"),
        ([*PREFER, "prefer.loss=kto", "prefer.micro_batch=1"], "it needs two"),
        ([*PREFER, "prefer.loss=best"], "must be"),
        ([*PAIRS, "prefer.length_gap=0.3"], "`prefer.length_gap` has no effect with `prefer.data`"),
        ([*PAIRS, "prefer.pairs_a_row=2"], "`prefer.pairs_a_row` has no effect with `prefer.data`"),
        ([*PAIRS, "train.select=mopps"], "`train.select` has no effect with `prefer.data`"),
        ([*PREFER, "prefer.data=run:first"], "`run:first` gives single answers"),
        ([*PREFER, "prefer.data=3"], "must be"),
        ([*AGREES], "needs two parts: with one it is plain GRPO"),
        ([*AGREES, "train.split={task: {verifiers: [math, agrees]}}"], "needs two parts"),
        (["verify.agrees={}", PARTS], "`train.split` has no effect with `reward_combine: sum`"),
        ([*SPLIT, "train.split.task.verifiers=[math, form]"], "`train.split.task` names no verifier `form`"),
        ([*SPLIT, "train.split.more.verifiers=[math]"], "`math` stands in the part `task` already"),
        ([*SPLIT, "verify.agrees.weight=0.5"], "`agrees` has a weight in the reward"),
        ([*SPLIT, *FORM], "`form` is paid, and stands in no part"),
        (
            [*SPLIT, *FORM, "train.split.task.verifiers=[form]", "verify.math.weight=0"],
            "the primary verifier is not in `task`",
        ),
        ([*SPLIT, "train.split.consistency.weight=-1"], "must be"),
        (
            [*SPLIT, "train.split.consistency.weight={from: 0.1, to: 0.5}"],
            "`train.split.consistency.weight.steps` is missing",
        ),
        ([*SPLIT, "train.baseline=leave_one_out", "train.scale=none"], "scales each part within its group"),
        ([*SPLIT, "train.scale=batch"], "scales each part within its group"),
        ([*SPLIT, "train.prune={keep: 2, by: variance}"], "`split` never forms them"),
        ([*SPLIT, "combine=min"], "has no effect on `reward_combine: split`"),
        ([*SPLIT, "train.control=random"], "which `split` never forms"),
        ([*SPLIT, *KEEP, "train.kl={beta: 0.1, estimator: k1_reward}"], "`split` never forms that sum"),
        ([*SPLIT, "train.std_floor=noise"], "is one number in units of the reward"),
        (["combine=split"], "works across a group"),
        (["sample.mix={rate: 0.1}", "sample.top_p=0.9", "sample.off_policy_ok=true"], "training scores no other"),
        (["sample.mix={}", "sample.engine=vllm"], "which the engine `vllm` cannot"),
        (["sample.mix={}", "sample.engine=transformers"], "which the engine `transformers` cannot"),
        (["sample.mix={}", "train.algorithm=ppo"], "a critic that sees the mixed inputs"),
        (["sample.mix={}", *PREFER], "which `method: prefer` has not"),
        (["sample.mix={}", "train.credit=rredcot"], "the values of cuts are read from"),
        (["sample.mix={}", "launch.strategy=fsdp2", "launch.gpus=2"], "was not tried with `launch.strategy: fsdp2`"),
        (["sample.mix={neighbours: 1}"], "must be at least 2"),
        (["sample.mix={rate: 2}"], "must be"),
        (["train.std_floor=0"], "must be above 0"),
        (["train.std_floor=loud"], "must be above 0, or `noise`, got"),
        (["train.std_floor=noise", *NORMALISED], "is one number in units of the reward"),
        (["train.std_floor=noise", "train.algorithm=ppo"], "has no effect with `baseline: critic`"),
        (["train.alive_by=form"], "must be `outcome`, `reward` or a list of verifiers"),
        (["train.alive_by=[]"], "must be `outcome`, `reward` or a list of verifiers"),
        ([*FORM, "train.alive_by=[math, from]"], "`train.alive_by` names no verifier `from`"),
        ([*FORM, "train.alive_by=[math, form]", "verify.form.weight=0"], "whose weight is 0"),
        ([*FORM, "train.alive_by=[form]"], "leaves out the primary verifier `math`"),
        ([*PREFER, "train.alive_by=reward"], "`train.alive_by` has no effect with `method: prefer`"),
        (["shaping.repetition={only: wrong}"], "`shaping.repetition.only` must be"),
        (["train.algorithm=dapo", "shaping.overlong={}"], "a penalty for long answers too"),
        (["train.overlong=0.3", "shaping.overlong={cache: 0.5}"], "a penalty for long answers too"),
        *[
            ([*NORMALISED, f"combine={{method: {method}}}"], f"`combine: {method}` has no effect")
            for method in ("first", "min")
        ],
        ([*NORMALISED, "combine={method: gate, gate: {w: needs_right}}"], "what is gated would be paid"),
        ([*NORMALISED, "combine={method: by, by: kind}"], "`combine: by` has no effect"),
        ([*KEEP, "train.trl.top_entropy_quantile=0.5", "sample.micro_batch=8"], "8 of them would train on"),
        ([*KEEP, "train.trl.use_adaptive_entropy=true", "sample.micro_batch=32"], "2 of them would train on"),
        (["train.trl.router_aux_loss_coef=null"], "out of what `router_aux_loss_coef` acts on"),
        (["train.prune.keep=4", "train.dead_groups=resample", "train.trl.entropy_coef=0.1"], "acts on all of them"),
        (["sample.micro_batch=7"], "does not divide 8 prompts x 8 = 64"),
        (["sample.top_p=0.9"], "off-policy"),
        (["monitor.on_alarm=roll_back"], "no gold verifier is named"),
        (["monitor.on_alarm={entropy: roll_back}"], "no gold verifier is named"),
        (["monitor.on_alarm={gold: pause}"], "needs a second verifier"),
        (["monitor.on_alarm=stop"], "must be `warn`, `pause` or `roll_back`"),
        (["monitor.on_alarm={kl: pause}"], "must be `warn`, `pause` or `roll_back`"),
        (["sample.vllm.mode=server", "sample.engine=graph"], "no effect"),
        (["model.load_in_4bit=true"], "cannot be trained"),
        (["model=x.gguf", "model.load_in_4bit=true", "model.lora={}"], "cannot be in 4 bits"),
        (["model=x.gguf", "model.gguf_file=y.gguf"], "already"),
        (["model=builtin:tiny", "model.revision=main"], "means nothing"),
        (["train.ratio=sequence"], "weighs an answer by its length"),
        (["train.ratio=sequence", "train.algorithm=cispo"], "defined for `ratio: token`"),
        (["train.loss=luspo"], "needs `ratio: sequence`"),
        (["train.loss=cispo"], "needs `train.clip.cap`"),
        (["train.clip.cap=5"], "belongs to `loss: cispo`"),
        (["train.baseline=leave_one_out"], "goes with `scale: none`"),
        (["train.kl.beta=0.1"], "leave the KL term"),
        (["train.schedule=cosine", "train.trl.lr_scheduler_type=linear"], "said too"),
        (["eval.samples=2", "eval.k=[4]"], "pass@4 needs 4 samples"),
        (["gate.pass@1=[0.9, 0.1]"], "nothing lies between"),
        (["eval.every=5"], "needs held-out rows"),
        (["stop.patience=5"], "needs held-out scores"),
        (["eval.between=8"], "nothing is measured between"),
        (["verify.math.weight=0"], "sum to 0"),
        (["verify.math.weight=-1"], "punished"),
        (["verify.b={kind: math, primary: true}", "verify.math.primary=true"], "primary already"),
        (["combine.gate={formt: needs_right}"], "names no verifier `formt`"),
        (["combine=gate"], "names no verifier"),
        (["combine=by"], "names no column"),
        (["combine.by={column: source, values: {gsm8k: maths}}"], "names no verifier `maths`"),
        (["combine.by={column: source, default: maths}"], "names no verifier `maths`"),
        (["combine.by={values: {gsm8k: math}}"], "`combine.by.column` is missing"),
        (["combine.by={column: a, valus: {}}"], "unknown key `valus`"),
        (["combine={method: sum, by: kind}"], "no effect with `method: sum`"),
        (['verify={math: {}, "a/b": {kind: math}}'], 'cannot be named "a/b"'),
        (["model.lora={targets: []}"], "must be `all-linear` or a list of layer names"),
        (["verify.total={kind: math}"], 'cannot be named "total"'),
        (["verify.length={kind: math}", "shaping.length={}"], "is a verifier and a shaping term"),
        (["launch.nodes=2"], "need `launch.rendezvous`"),
        (["launch.nodes=2", "launch.rendezvous=a:1", "launch.node_rank=2"], "they count from 0"),
        (["launch.rendezvous=a:1"], "has no effect"),
        (["launch.strategy=fsdp2", "launch.gpus=1"], "the recipe asks for one"),
        (["launch.strategy=fsdp2", "sample.engine=vllm"], "does not take weights from"),
        (["launch.strategy=fsdp2", "model.load_in_4bit=true", "model.lora={}"], "are not sharded"),
        (["launch.strategy=fsdp2", "train.trl.optim=adafactor"], "not made for the shards"),
        (["launch.strategy=zero1", "train.trl.optim=adafactor"], "not made for the shards"),
        (["launch.strategy=fsdp2", "train.trl.torch_compile=true"], "`torch_compile` does not go with"),
        (["train.recompute=full", "train.trl.gradient_checkpointing=true"], "`train.recompute: full` is set too"),
        (["train.recompute=layer"], "`train.recompute` must be one of no, selective, full"),
        (["launch.strategy=fsdp2", "train.recompute=selective"], "`train.recompute: selective` was not tried with"),
        (["launch.strategy=zero3", "train.offload=activations"], "`train.offload` was not tried with"),
        ([*PREFER, "train.recompute=full"], "`train.recompute` has no effect with `method: prefer`"),
        ([*PREFER, "train.offload=activations"], "`train.offload` has no effect with `method: prefer`"),
        (["train.trl.fsdp=true"], "is not for `train.trl`"),
        (["train.seed=3000000000"], "must be at most 2,147,483,647"),
        (["train.lr=.nan"], "must be a finite number, got .nan"),
        (["train.trl.use_vllm=true"], "is not for `train.trl`"),
    ],
)
def test_a_broken_rule_is_said(tmp_path: Path, sets: list[str], part: str) -> None:
    (message,) = mistakes(tmp_path, *sets)
    assert part in message


@pytest.mark.parametrize(
    "sets",
    [
        ["sample.micro_batch=16"],
        ["launch.strategy=zero1", "launch.gpus=1", "train.mini_batches=2"],
        ["launch.strategy=zero1", "model.load_in_4bit=true", "model.lora={}"],
        ["sample.top_p=0.9", "sample.off_policy_ok=true"],
        ["model.load_in_4bit=true", "model.lora={r: 4}"],
        ["train.recompute=selective", "train.offload=activations"],
        ["train.recompute=no", "train.trl.gradient_checkpointing=true"],
        ["launch.strategy=fsdp2", "launch.gpus=2", "train.recompute=full"],
        ["train.kl.beta=0.1", "train.dead_groups=keep"],
        ["train.trl.lr_scheduler_type=cosine_with_min_lr"],
        ["eval.samples=2"],
        ["eval.samples=1"],
        ["data.eval=b.jsonl", "eval.every=5", "stop.patience=3"],
        ["data.eval=b.jsonl", "eval.every=5", "eval.between=8"],
        ["data.eval=b.jsonl", "eval.every=5", "eval.between=8", "stop.patience=5"],
        ["verify.math.weight=0.5", "shaping.length={target: 3}"],
        ["verify.b={kind: math}", "combine.gate={b: must_pass}"],
        ["combine.by=kind"],
        ["combine.by={column: source, values: {gsm8k: math}, default: math}"],
        ["combine.by={column: source, default: math}"],
        ["combine=min"],
        [*FORM, "train.alive_by=[math, form]"],
        ["train.alive_by=reward", "train.std_floor=noise"],
        ["shaping.repetition={only: right, n: 3}"],
        ["train.lr_warmup_steps=11"],
    ],
)
def test_what_may_be_meant_passes(tmp_path: Path, sets: list[str]) -> None:
    assert mistakes(tmp_path, *sets) == []


@pytest.mark.parametrize(
    "sets",
    [
        ["train.algorithm=dapo", "shaping.overlong={}", "train.overlong=null"],
        [*KEEP, "train.trl.top_entropy_quantile=0.5"],
        [*KEEP, "train.trl.top_entropy_quantile=0.5", "sample.micro_batch=64"],
        [*KEEP, "train.trl.entropy_coef=0.1", "sample.micro_batch=8"],
        ["train.trl.router_aux_loss_coef=0", "train.trl.entropy_coef=0"],
        [*NORMALISED, "combine={method: sum}"],
    ],
)
def test_what_is_exact_stays_allowed(sets: list[str], tmp_path: Path) -> None:
    assert mistakes(tmp_path, *sets) == []


def test_no_steps_is_another_mistake_than_no_word_of_them(tmp_path: Path) -> None:
    assert mistakes(tmp_path, "train.steps=0") == ["`train.steps: 0` trains nothing"]
    assert mistakes(tmp_path, "train.steps=0", "train.epochs=1") == []
    file = tmp_path / "none.yaml"
    file.write_text(BASE.replace("{steps: 10}", "{lr: 1e-6}"))
    with pytest.raises(RecipeError, match="says neither `steps` nor `epochs`"):
        load(file)


def test_a_critic_may_be_trained_for_epochs(tmp_path: Path) -> None:
    assert mistakes(tmp_path, "train.steps=0", "train.epochs=1", "train.algorithm=ppo") == []
