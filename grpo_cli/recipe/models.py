"""What a recipe may say, key by key. The short forms of YAML (`model: NAME`) are widened before these see them.

`load` is the way in: it also resolves `extends` and `--set`, checks verifier options, `train.trl` and the rules
between fields. Building a `Recipe` from a plain dict checks names, types and ranges only.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from grpo_cli.recipe.fields import Above0, Count, Finite, Least0, Section, Share, Whole, Words, one_of
from grpo_cli.recipe.presets import fill
from grpo_cli.recipe.shorthand import widen, widen_checked

Loss = Literal["grpo", "bnpo", "dapo", "dr_grpo", "cispo", "sapo", "luspo", "vespo"]
Estimator = Literal["k1_loss", "k1_reward", "k2", "k3", "k3_corrected"]
Algorithm = Literal[
    "default",
    "grpo",
    "grpo_k1",
    "dr_grpo",
    "dapo",
    "gspo",
    "gspo_token",
    "cispo",
    "sapo",
    "rloo",
    "reinforce_pp",
]


class Lora(Section):
    """Train low-rank adapters instead of all weights."""

    r: Whole = 16
    """Rank. Raising it gives the adapter more room and costs memory; 1 to 32 is enough for rewards."""
    alpha: Whole | None = None
    """Scale of the adapter, divided by `r`; left out it is twice `r`."""
    dropout: Share = 0.0
    """Dropout on the adapter input; above 0 the sampling and the training policy differ."""
    targets: Annotated[
        Literal["all-linear"] | list[Words], one_of("`all-linear` or a list of layer names")
    ] = "all-linear"
    """Which layers carry an adapter."""


class Model(Section):
    """The model that is trained. A plain word means `path`."""

    path: Words
    """Hub id, folder, `.gguf` file, or `builtin:NAME`."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of the loaded weights; `auto` is bfloat16 on a GPU and float32 on a CPU."""
    lora: Lora | None = None
    """Adapters; left out, all weights are trained."""
    attention: Words | None = None
    """Attention implementation, such as `sdpa` or `flash_attention_2`; left out, transformers chooses."""
    load_in_4bit: bool = False
    """Load the base weights in 4 bits (bitsandbytes, GPU only); needs `lora`."""
    gguf_file: Words | None = None
    """Name of the GGUF file inside the folder or repository `path`."""
    revision: Words | None = None
    """Commit, tag or branch of a hub model."""


class Source(Section):
    """Where rows come from. A plain word means `from`."""

    source: Words = Field(alias="from")
    """`FILE.jsonl[.gz|.zst]`, `.csv`, `.parquet`, `hub:NAME`, or `tasks:NAME` (procedural, offline)."""
    limit: Whole | None = None
    """Take at most this many rows."""
    skip: Count = 0
    """Leave out this many rows first."""
    weight: Above0 = 1.0
    """How often each of its rows stands in the mix where `train` is a list: 2 is twice, 0.5 every second row."""
    options: dict[str, Any] = Field(default_factory=dict)
    """`split`, and options of a procedural task, or `config`, `revision` and `streaming` of a hub data set."""


class Data(Section):
    """Rows, and how a row becomes a prompt and an answer. Templates name columns: `{question}`, `{a | strip}`."""

    train: list[Source] = Field(min_length=1)
    """Training rows; a list mixes its sources by `weight`."""
    eval: Source | None = None
    """Held-out rows, never trained on."""
    system: str | None = None
    """System message before every prompt."""
    prompt: Words
    """Template of the prompt."""
    answer: str | None = None
    """Template of the gold answer; left out, a column `answer` is taken as it is."""
    id: str | None = None
    """Template of the row id; left out, a hash of the row."""
    plain: bool = False
    """Give the prompt as plain text instead of through the chat template."""
    max_prompt_tokens: Whole | None = None
    """Rows with a longer prompt are left out and counted."""
    on_bad_gold: Literal["error", "drop"] = "error"
    """What happens to a row whose gold its own verifier refuses."""
    columns: dict[str, str] = Field(default_factory=dict)
    """More inputs for verifiers: name to template or column."""


class Verify(Section):
    """One verifier. Keys that are not listed here are options of its kind, see `grpo explain KIND`."""

    kind: Words
    """Which verifier; left out, the name it stands under."""
    weight: Finite = 1.0
    """Factor of its score in the reward; 0 records verdicts without rewarding them."""
    primary: bool = False
    """Its verdict says what "right" means; where none is marked it is the first."""
    right_at: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Score from which a sample counts as right."""
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _sort_keys(cls, value: Any) -> Any:
        return gather_options(value, ("kind", "weight", "primary", "right_at"))


class Shaping(Section):
    """A term of the reward that is no verdict, in [-1, 1]. Keys that are not listed here are its options."""

    weight: Finite = 1.0
    """Factor in the reward."""
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _sort_keys(cls, value: Any) -> Any:
        return gather_options(value, ("weight",))


def gather_options(value: Any, own: tuple[str, ...]) -> Any:
    """A mapping with every key outside `own` moved under `options`."""
    if not isinstance(value, dict):
        return value
    given = value.get("options", {})
    if not isinstance(given, dict):
        return value
    rest = {k: v for k, v in value.items() if k not in own and k != "options"}
    return {k: v for k, v in value.items() if k in own} | {"options": given | rest}


class Sample(Section):
    """How completions are drawn. A batch is `prompts` x `group` completions."""

    prompts: Whole = 8
    """Prompts a step. Raising it makes steps steadier and longer."""
    group: Annotated[int, Field(ge=2)] = 8
    """Completions of each prompt. Raising it finds rare right answers and costs time in proportion."""
    max_tokens: Whole = 512
    """Longest completion; what is cut there counts as truncated."""
    temperature: Above0 = 1.0
    """Spread of sampling. Raising it explores more and makes more errors."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sample from the likeliest tokens of this mass; below 1 training is off-policy."""
    top_k: Count = 0
    """Sample from this many likeliest tokens; 0 is all. Above 0 training is off-policy."""
    min_p: Share = 0.0
    """Leave out tokens less likely than this share of the likeliest; above 0 training is off-policy."""
    repetition_penalty: Above0 = 1.0
    """Make repeated tokens less likely; other than 1 training is off-policy."""
    engine: Literal["auto", "graph", "transformers", "vllm"] = "auto"
    """Who generates; `auto` takes vllm where it is installed and fits, else graph, else transformers."""
    micro_batch: Whole | None = None
    """Completions in one forward and backward; left out, all at once on a CPU and found on a GPU."""
    off_policy_ok: bool = False
    """Train on truncated sampling all the same."""
    vllm: dict[str, Any] = Field(default_factory=dict)
    """Settings of vllm: `mode: colocate | server` and what TRL calls `vllm_NAME`."""


class Clip(Section):
    """Trust region of the probability ratio: [1 - low, 1 + high]."""

    low: Least0 = 0.2
    """How far the ratio may fall before its gradient is cut."""
    high: Least0 = 0.28
    """How far it may rise. Raising it lets rare tokens grow faster."""
    cap: Above0 | None = None
    """`loss: cispo` only: the absolute cap of the ratio (TRL's convention, not 1 + high)."""


class Kl(Section):
    """Pull towards the model the run started from."""

    beta: Least0 = 0.0
    """Strength; 0 needs no reference model. Raising it keeps the policy near its start."""
    estimator: Estimator = "k3_corrected"
    """Which estimate is penalised; `k1_loss` has no pull in expectation and is here for comparison."""


class Train(Section):
    """The method. `algorithm` fills every key of the method that is not said beside it."""

    algorithm: Algorithm = "default"
    """A named method, see `grpo explain NAME`."""
    steps: Whole
    """Optimizer steps. Each batch of completions serves `inner_epochs` of them."""
    lr: Above0
    """Learning rate at its highest; left out, 1e-6, or 1e-5 with `model.lora`."""
    lr_warmup_steps: Count | None = None
    """Steps over which the rate rises from 0; left out, none."""
    schedule: Literal["linear", "constant", "cosine"] = "linear"
    """How the rate falls after that."""
    max_grad_norm: Above0 = 1.0
    """Longest gradient; longer ones are scaled down."""
    inner_epochs: Whole = 1
    """Passes over each batch of completions. Above 1 the ratio and its clip begin to matter."""
    loss: Loss = "dapo"
    """Over what the token losses are averaged (TRL's names)."""
    ratio: Literal["token", "sequence", "sequence_token"] = "token"
    """Level of the importance ratio: each token, the whole answer (GSPO), or GSPO-token."""
    baseline: Literal["mean", "leave_one_out"] = "mean"
    """What is subtracted from a reward: the mean of its group, or of the others in it."""
    scale: Literal["group", "batch", "none"] = "group"
    """Whose standard deviation divides the advantages."""
    std_ddof: Literal[0, 1] = 1
    """1 divides the variance by G - 1, 0 by G."""
    std_floor: Least0 = 1e-6
    """A spread of rewards at or below this is none: the advantages are exactly 0."""
    clip: Clip = Clip()
    kl: Kl = Kl()
    dead_groups: Literal["keep", "drop", "resample"] = "drop"
    """Groups whose rewards are all equal: train on them, leave them out, or draw others instead."""
    select: Literal["uniform", "auto", "greso", "mopps", "priority", "screen", "easy_to_hard"] = "uniform"
    """Which rows are drawn."""
    overlong: Annotated[float, Field(gt=0, le=1)] | None = None
    """DAPO's soft penalty, from 0 to -1 over this last share of `sample.max_tokens`; left out, none."""
    mask_truncated: bool = False
    """Leave truncated completions out of the loss."""
    reward_combine: Literal["sum", "normalise_then_sum"] = "sum"
    """Sum weighted scores, or normalise each verifier's within the group first."""
    seed: Count = 0
    """Seed of sampling, order and adapters."""
    trl: dict[str, Any] = Field(default_factory=dict)
    """Any other field of TRL's `GRPOConfig`, by its own name."""


class Eval(Section):
    """Held-out measurement."""

    every: Whole | None = None
    """Steps between evaluations; left out, only before and after."""
    samples: Whole = 4
    """Completions of each held-out prompt. Raising it narrows the interval of pass@k."""
    k: list[Whole] = Field(default=[1, 4], min_length=1)
    """The k of pass@k; none above `samples`."""
    limit: Whole | None = None
    """Sample at most this many held-out rows; greedy takes all."""
    temperature: Above0 | None = None
    """Left out, `sample.temperature`."""
    greedy: bool = True
    """Also decode every held-out row once, greedily."""
    max_tokens: Whole | None = None
    """Left out, `sample.max_tokens`."""


class Stop(Section):
    """When to stop before the last step."""

    on: list[Literal["non_finite", "entropy_collapse", "dead_groups"]] = Field(default=["non_finite"])
    """Findings that stop the run."""
    patience: Whole | None = None
    """Stop after this many steps without a better held-out score."""
    verifier_errors: Share = 0.05
    """Stop when more than this share of a step's samples got no verdict."""


class Run(Section):
    """Where the run is written, and how long it may take."""

    dir: Words = "runs"
    """Folder of run folders."""
    name: Words | None = None
    """Name of the run folder; left out, date, recipe and four letters."""
    save_every: Whole | None = None
    """Steps between checkpoints; left out, only the last."""
    keep: Whole = 2
    """Checkpoints kept."""
    track: list[Literal["tensorboard", "wandb", "trackio"]] = Field(default_factory=list)
    """Trackers that get the same numbers."""
    threads: Whole | None = None
    """CPU threads; left out, what the machine grants."""
    deadline: Annotated[str, Field(pattern=r"^\d+(\.\d+)?[smhd]?(\d+(\.\d+)?[smhd])*$")] | None = None
    """Save and stop after this time, such as `3h50m`."""


class Launch(Section):
    """Processes."""

    gpus: Annotated[Literal["auto"] | Whole, one_of("`auto` or a whole number above 0")] = "auto"
    """GPUs to use."""


class Demonstration(Section):
    """One kind of completion that the warm-up shows."""

    template: Words
    """Template over columns."""
    weight: Above0 = 1.0
    """Share among the demonstrations."""


class WarmupPhase(Section):
    """Supervised training on demonstrations before the first step."""

    data: Source | None = None
    """Rows; left out, the training rows."""
    demonstration: list[Demonstration] = Field(min_length=1)
    """What a good completion looks like: a template, or several with weights."""
    steps: Whole
    lr: Above0
    muon_lr: Above0 | None = None
    """Learning rate of Muon on the weight matrices; left out, AdamW does all."""
    batch: Whole = 64
    lr_warmup_steps: Count = 10
    final_lr: Share = 0.1
    """Share of the rate that is left at the end."""
    limit: Whole | None = None
    """Use at most this many rows."""


class Recipe(Section):
    """One recipe: a model, rows, verifiers and a method."""

    grpo: Literal[1] = 1
    """Version of the recipe's schema."""
    extends: str | None = None
    """Another recipe that this one lies over, as a path beside it or a shipped name."""
    model: Model
    data: Data
    verify: dict[str, Verify] = Field(min_length=1)
    """Verifiers by name; a name is also the kind where none is said."""
    shaping: dict[Literal["overlong", "length", "repetition", "language"], Shaping] = Field(
        default_factory=dict
    )
    """Terms of the reward that are no verdicts."""
    sample: Sample = Sample()
    train: Train
    eval: Eval = Eval()
    stop: Stop = Stop()
    run: Run = Run()
    launch: Launch = Launch()
    warmup: list[WarmupPhase] | None = None
    """Supervised cold start, phase by phase; left out, training starts from the model as it is."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, value: Any) -> Any:
        return complete(value) if isinstance(value, dict) else value

    def resolved(self) -> str:
        """YAML of everything, defaults and presets written out; loading it gives an equal recipe."""
        from grpo_cli.recipe.dump import to_yaml

        return to_yaml(self)

    def sha(self) -> str:
        """Hash of the resolved text."""
        return hashlib.sha256(self.resolved().encode()).hexdigest()


def complete(data: dict[str, Any]) -> dict[str, Any]:
    """`data` with short forms widened, the preset filled in, the learning rate chosen and one verifier primary."""
    out = widen_checked(widen(data))
    evaluation = out.get("eval")
    if isinstance(evaluation, dict) and "k" not in evaluation:
        samples = evaluation.get("samples", 4)
        out["eval"] = evaluation | {"k": [1, samples] if type(samples) is int and samples > 1 else [1]}
    train = out.get("train")
    if isinstance(train, dict):
        model = out.get("model")
        lora = isinstance(model, dict) and isinstance(model.get("lora"), dict)
        out["train"] = {"lr": 1e-5 if lora else 1e-6} | fill(train)
    verify = out.get("verify")
    if isinstance(verify, dict) and not any(
        isinstance(v, dict) and v.get("primary") for v in verify.values()
    ):
        for name, one in verify.items():
            if isinstance(one, dict):
                out["verify"] = verify | {name: one | {"primary": True}}
                break
    return out
