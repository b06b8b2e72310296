"""The sections `model`, `data` and `environment`: what is trained, how rows become prompts and golds, and in which world it acts.

How this works: each class is a section of the recipe and each field a key, with its range in its type and its meaning below it. The
marks `ModelName`, `RowsName` and `CodeName` name what lies outside the recipe: `recipe.named` finds it by them.
"""

from __future__ import annotations

import shlex
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from grpo_cli.recipe.sections.fields import (
    MANY,
    ONE,
    Above0,
    CodeName,
    Count,
    Least0,
    ModelName,
    RowsName,
    Section,
    Share,
    Whole,
    Words,
    one_of,
)


class Lora(Section):
    """Train low-rank adapters instead of all weights."""

    r: Whole = 16
    """Rank. Raising it gives the adapter more room and costs memory; 1 to 32 is enough for rewards."""
    alpha: Whole | None = None
    """Scale of the adapter, divided by `r`; left out it is twice `r`."""
    dropout: Share = 0.0
    """Dropout on the adapter input; above 0 the sampling and the training policy differ."""
    targets: Annotated[
        Literal["all-linear"] | Annotated[list[Words], Field(min_length=1)],
        one_of("`all-linear` or a list of layer names"),
    ] = "all-linear"
    """Which layers carry an adapter."""


class Model(Section):
    """The model that is trained. A plain word means `path`."""

    path: ModelName
    """Hub id, folder, LoRA folder, folder of a run (its newest whole checkpoint), `.gguf` file, or `builtin:NAME`."""
    base: ModelName | None = None
    """The model that a LoRA folder in `path` belongs to, where the one it names itself is not here."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of the loaded weights; `auto` is bfloat16 on a GPU and float32 on a CPU."""
    head: Literal["auto", "float32"] = "auto"
    """Type of the last product, which makes the logits, in sampling and training; `auto` is that of the other products. In bfloat16
    logits above 16 come in steps of 0.125."""
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
    context: Annotated[int, Field(ge=16, le=65_536)] | None = None
    """`builtin:tiny` only: most tokens of prompt and completion together; left out, 512."""
    tokenizer: ModelName | None = None
    """Folder or hub id of another tokenizer; left out, the model's own."""
    chat_template: Words | None = None
    """Chat template in place of the tokenizer's: a file beside the recipe, or the template itself."""
    template_args: dict[str, Any] = Field(default_factory=dict)
    """What the chat template gets beside the messages, such as `enable_thinking: false`; in every job."""
    kind: Literal["text", "vision"] = "text"
    """`vision` is a model that reads images through a processor; `data.images` sets it."""
    freeze_vision: bool = True
    """Train the language part alone, also with `lora`: what makes image tokens of pixels stays as it is."""


class Source(Section):
    """Where rows come from. A plain word means `from`."""

    source: RowsName = Field(alias="from")
    """`FILE.jsonl[.gz|.zst]`, `.csv`, `.parquet`, a pattern (`part-*.jsonl`), a folder of `save_to_disk`, `hub:NAME`,
    `tasks:NAME` (procedural, offline), `run:NAME` (right samples of a run, with the column `completion`), or `verifiers:ID` (tasks of
    a taskset)."""
    limit: Whole | None = None
    """Take at most this many rows."""
    skip: Count = 0
    """Leave out this many rows first."""
    weight: Above0 = 1.0
    """How often each of its rows stands in the mix where `train` is a list: 2 is twice, 0.5 every second row."""
    options: dict[str, Any] = Field(default_factory=dict)
    """`split` (also of a `save_to_disk` folder), and options of a procedural task, `config`, `revision` and `streaming` of a hub
    data set, or `only`, `a_row`, `shortest`, `language`, `repetition` and `since` of a run; of a taskset `split` (`all` is no
    split), `size` and what `environment` says of it."""


Sources = Annotated[
    Annotated[Source, Tag(ONE)] | Annotated[list[Source], Tag(MANY)],
    Discriminator(lambda value: MANY if isinstance(value, list) else ONE),
]
"""One source or a list of them; a mistake is that of the form that was written."""


class ImagePixels(Section):
    """Bounds of an image's size in pixels; the processor makes smaller and larger ones fit."""

    least: Whole | None = None
    """Fewest pixels; left out, the processor's own bound."""
    most: Whole | None = None
    """Most pixels, which bounds the tokens that an image costs; left out, the processor's own bound."""


class Data(Section):
    """Rows, and how a row becomes a prompt and an answer. Templates name columns: `{question}`, `{a | strip}`."""

    train: list[Source] = Field(min_length=1)
    """Training rows; a list mixes its sources by `weight`."""
    eval: Sources | None = None
    """Held-out rows, never trained on; a list puts its sources together by `weight`."""
    where: str | None = None
    """Keep the rows for which this holds, such as `level >= 3 and source in ['amc', 'aime']`; left out, all."""
    on_null: Literal["error", "drop"] = "error"
    """What happens to a row with null in a column that a template names, or without that column where other rows have it, or
    with an empty prompt."""
    system: str | None = None
    """System message before every prompt; `{column}` is filled from the row, other braces stay."""
    prompt: Words
    """Template of the prompt."""
    prefill: str | None = None
    """The beginning of every answer, such as `<think>`: it stands at the end of the prompt, and verifiers read it before the
    completion; `{column}` is filled from the row, other braces stay."""
    answer: str | None = None
    """Template of the gold answer; left out, a column `answer` is taken as it is."""
    id: str | None = None
    """Template of the row id; left out, a hash of the row."""
    images: Annotated[Words | list[Words], one_of("a column or a list of columns")] | None = None
    """Columns with the images of a row: paths beside the file of the rows, bytes, or lists of them. They stand where the prompt has
    `<image>`, else before the text of the last user message. An empty list leaves images out; left out, rows may have none."""
    image_pixels: ImagePixels = ImagePixels()
    """Bounds of an image's size."""
    plain: bool = False
    """Give the prompt as plain text instead of through the chat template."""
    max_prompt_tokens: Whole | None = None
    """Rows with a longer prompt are left out and counted."""
    on_bad_gold: Literal["error", "drop"] = "error"
    """What happens to a row whose gold its own verifier refuses."""
    columns: dict[str, str] = Field(default_factory=dict)
    """More inputs for verifiers: name to template or column."""


class HarnessSpec(Section):
    """A program that plays an episode by asking our endpoint for turns, as it would ask OpenAI's or Anthropic's."""

    command: Words
    """Its command line, split as a shell does, without a shell. It finds the endpoint in `OPENAI_BASE_URL`, `OPENAI_API_KEY` and
    Anthropic's two; `python` is the interpreter of this program, and names of files count from the recipe's folder."""
    given: list[Words] = Field(default_factory=list, alias="pass")
    """Columns of the row that it reads on stdin, as one JSON object; others it does not see."""
    score: CodeName | None = None
    """A function of yours that returns the outcome of an episode, `FILE.py:FUNCTION` or `MODULE:FUNCTION`, called with the row, the
    episode's folder and its transcript. Left out, `verify` judges the last line that the program printed."""


class EndpointSpec(Section):
    """The endpoint that a `harness`, or a taskset of `verifiers`, asks."""

    gather_ms: Least0 = 5.0
    """Milliseconds without a new request after which those that wait are answered together, unless every episode waits before. At a
    value that is never reached, each answer waits for all episodes and a run repeats bit for bit."""
    max_rows: Whole = 8
    """Rows of an episode: each time its history is rewritten one begins. More end the episode, which is judged."""
    train_rows: Literal["main", "all"] = "main"
    """`main` learns from rows with the system message and tools of the first request; `all` from titles and summaries too."""
    episode_s: Above0 = 300.0
    """Seconds after which a program that has not ended is killed, those in which it waits for the model not counted: no verdict."""


class ServerSpec(Section):
    """A server of the Model Context Protocol: a program that is started, or an address."""

    command: list[Words] = Field(default_factory=list)
    """Its command line, in words. It runs in the recipe's folder and sees PATH, LANG, a HOME of its own and the variables of `env`.
    It is code that you run: no sandbox is around it."""
    url: str = ""
    """Its address over HTTP, in place of `command`."""
    header_env: dict[str, Words] = Field(default_factory=dict)
    """HTTP headers, each with the environment variable that holds its value; neither is kept in the run."""
    env: list[Words] = Field(default_factory=list)
    """Environment variables that the program sees too."""


@cache
def has_tasksets() -> bool:
    """Whether this Python has `verifiers` from 0.4 on."""
    try:
        return tuple(int(part) for part in version("verifiers").split(".")[:2]) >= (0, 4)
    except (PackageNotFoundError, ValueError):
        return False


class Environment(Section):
    """A world in which the model acts turn by turn: one of `python`, `tools`, `trl`, `verifiers`, `openenv` and `harness`, or `mcp`
    alone. A plain word means `python`."""

    python: CodeName | None = None
    """A class of yours, `FILE.py:CLASS` or `MODULE:CLASS`, with `reset(row, seed)` and `step(action)`; or one that is
    shipped, `environments:NAME`."""
    tools: Annotated[list[CodeName], Field(min_length=1)] | None = None
    """Functions with typed arguments that the model may call, `FILE.py:FUNCTION` or `MODULE:FUNCTION`; `python` runs code of
    the model in the sandbox. A turn without a call is the answer, which `verify` judges."""
    trl: CodeName | None = None
    """A class for TRL's `environment_factory`, `FILE.py:CLASS` or `MODULE:CLASS`: `reset(**columns)`, public methods as tools,
    and `get_reward()`."""
    verifiers: CodeName | None = None
    """The id of a taskset of the package `verifiers` 0.4, whose tasks are rows as `data.train: verifiers:ID`. Of 0.1 to 0.3 the id of
    a `SingleTurnEnv` or `MultiTurnEnv`, or `MODULE:FUNCTION` that loads one."""
    openenv: CodeName | None = None
    """An environment of OpenEnv: the address of its server, `http://HOST:PORT`, or its class, `MODULE:CLASS`."""
    mcp: Annotated[dict[str, ServerSpec], Field(min_length=1)] | None = None
    """Servers whose tools the model may call, as `SERVER_TOOL`, by themselves or beside `tools` or `trl`. One that dies or is silent
    leaves its episode without a verdict."""
    allow: list[Words] = Field(default_factory=list)
    """Patterns of the tools that are offered, such as `notes.*`, each `SERVER.TOOL`; left out, all."""
    scope: Literal["run", "episode"] = "run"
    """How long a server lives: as long as its worker, or one episode, for servers with a state."""
    interpreter: Words | None = None
    """The Python that has the packages of the world, such as `.venv-games/bin/python`, where ours does not; `python` is ours. With
    `verifiers` it means a taskset of 0.4."""
    harness: HarnessSpec | None = None
    """A program that plays an episode by asking an endpoint for turns of the model. A plain word is its command."""
    endpoint: EndpointSpec = Field(default_factory=EndpointSpec)
    """How the endpoint of a `harness` or a taskset answers."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What the class, or the environment, is made with; of a taskset keys of its `EnvConfig`, such as `taskset` and `agent`."""
    env: list[str] = Field(default_factory=list)
    """Environment variables with a secret, such as an API key, that it may read; others it does not see."""
    max_turns: Whole = 16
    """Turns after which an episode ends. Raising it lets longer ways be found and costs time in proportion."""
    turn_tokens: Whole | None = None
    """Longest turn of the model; left out, what is left of `sample.max_tokens`, which bounds the whole episode."""
    role: Literal["user", "tool"] = "user"
    """The role in which the chat template shows what the environment says; results of tools are always `tool`."""
    history: Literal["full", "last"] = "full"
    """What a turn sees of the ones before it: all."""
    invalid_penalty: Least0 = 0.1
    """Taken off the outcome for each action that the environment calls invalid."""
    over_limit: Literal["least", "no_verdict"] = "least"
    """The reward of an episode whose actions make a step or the score exceed its limits, die or raise, twice in a recreated
    environment: the least of its group, at most 0, or no verdict, which a policy can learn to provoke when it expects to lose."""
    timeout_s: Above0 = 5.0
    """CPU seconds of one step; three times as much wall time (and two seconds) when it waits."""
    memory_mb: Whole = 1024
    """Memory that the environments of one worker may add to it."""
    workers: Whole | None = None
    """Worker processes; left out, one a core."""

    @property
    def kind(self) -> Literal["python", "tools", "trl", "verifiers", "openenv", "harness"]:
        """Which of them it is; servers alone are tools."""
        for name in ("harness", "tools", "trl", "verifiers", "openenv"):
            if getattr(self, name) is not None:
                return name
        return "tools" if self.mcp is not None and self.python is None else "python"

    @property
    def named(self) -> tuple[str, ...]:
        """What is said under that key."""
        if self.kind == "tools":
            return tuple(self.tools or ())
        command = self.harness.command if self.harness is not None else ""
        return (command or self.trl or self.verifiers or self.openenv or self.python or "",)

    @property
    def commands(self) -> dict[str, list[str]]:
        """The words of each program that it runs, by their key."""
        harness = dict[str, list[str]]()
        if self.harness is not None:
            try:
                harness["harness.command"] = shlex.split(self.harness.command)
            except ValueError:  # refused where rules are checked
                harness["harness.command"] = self.harness.command.split()
        servers = {f"mcp.{name}.command": one.command for name, one in (self.mcp or {}).items() if one.command}
        return harness | servers | ({} if self.interpreter is None else {"interpreter": [self.interpreter]})

    @property
    def urls(self) -> dict[str, str]:
        """The addresses that it asks, by their key."""
        servers = {f"mcp.{name}.url": one.url for name, one in (self.mcp or {}).items() if one.url}
        return servers | ({"openenv": self.openenv} if self.openenv and "://" in self.openenv else {})

    @property
    def has_calls(self) -> bool:
        """Whether a turn acts by calling tools."""
        return self.kind in ("tools", "trl")

    @property
    def is_taskset(self) -> bool:
        """Whether `verifiers` names a taskset of 0.4, whose episodes are played by themselves: another Python has it, or ours does."""
        return self.verifiers is not None and (self.interpreter is not None or has_tasksets())

    @property
    def plays_itself(self) -> bool:
        """Whether its episodes ask the endpoint, so that an episode may be several rows."""
        return self.harness is not None or self.is_taskset

    @property
    def speaks_as(self) -> Literal["user", "tool"]:
        """The role of what it says."""
        return "tool" if self.has_calls else self.role
