"""Finds faults of a model in its files before anything is loaded. `grpo check` prints them; loading refuses with the
same messages.

How this works: `flaws` gets the recipe's `model` and looks at one thing after the other: the adapter, the place, the
packages that are needed, `config.json`, the weights, the tokenizer, and whether vocabulary and model agree. Each check
is a generator of `ModelFlaw`; the first fatal flaw ends the checks, since those after it could not be judged. Only
files and installed packages are looked at; transformers' own tables are read as text, because importing it takes
seconds.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import metadata
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from grpo_cli.data.sources import why_offline
from grpo_cli.errors import RecipeError, SetupError, UserError
from grpo_cli.policy.loading.adapter import adapter_folder, base_of, refuse_adapter
from grpo_cli.policy.loading.files import BUILT_IN, model_files, tokenizer_files
from grpo_cli.policy.loading.packages import QUANTIZERS, PackageNeed, model_needs
from grpo_cli.policy.loading.weights import wrong_weights
from grpo_cli.policy.tiny import TINY_VISION
from grpo_cli.recipe.sections.recipe import Lora, Model
from grpo_cli.text import path_of
from grpo_verifiers.names import nearest

TOKENIZERS = ("tokenizer*", "vocab*", "*.model", "tekken.json")
"""Files of which a folder with a tokenizer has some."""


@dataclass(frozen=True, slots=True)
class ModelFlaw:
    """A reason why a model cannot be loaded; `is_fatal` is False where it is only a possible one."""

    message: str
    hint: str = ""
    is_fatal: bool = True
    place: str = ""
    kind: type[UserError] = SetupError

    def error(self) -> UserError:
        """As loading raises it."""
        return self.kind(self.message, place=self.place, hint=self.hint)

    @classmethod
    def of(cls, err: UserError) -> ModelFlaw:
        """An error of one mistake."""
        return cls(str(err), err.hint, place=err.mistakes[0].place, kind=type(err))


def refuse_flaws(model: Model, *, trains: bool = True) -> None:
    """Raise the first fault that the files of a model show; `trains`: the model is trained, not only measured.

    Raises:
        SetupError, RecipeError: the first fault that loading would meet.
    """
    for flaw in flaws(model, trains=trains):
        if flaw.is_fatal:
            raise flaw.error()


def of_other(key: str, source: str, err: SetupError) -> SetupError:
    """What is wrong with another model than the policy's, a critic's or a teacher's, under its key."""
    return SetupError(f"`{key}: {source}`: {err}", hint=err.hint)


def refuse_4bit(model: Model, *, on_gpu: bool) -> None:
    """Raises SetupError for weights in 4 bits where there is no GPU."""
    if model.load_in_4bit and not on_gpu:
        raise SetupError("`model.load_in_4bit` needs a CUDA device", hint="leave it out, or take a machine with one")


def refuse_router_loss(model: Model, coefficient: float | None) -> None:
    """Refuse a router loss of this weight for a model that has no experts.

    Raises:
        RecipeError: its class in transformers returns no router's logits.
    """
    whole = base_of(model, 0).model
    config = {"model_type": "llama"} if whole.path == "builtin:tiny" else model_files(whole).json("config.json") or {}
    text = config.get("text_config")
    fields = _fields(str((text if isinstance(text, dict) else config).get("model_type")))
    if coefficient and fields and "output_router_logits" not in fields:
        raise RecipeError(
            f"`{model.path}`, of the type `{config.get('model_type')}`, has no experts, so there is no router's loss to weigh",
            place="train.trl.router_aux_loss_coef",
            hint="leave it out",
        )


def flaws(model: Model, *, trains: bool = True) -> Iterator[ModelFlaw]:
    """All known reasons why the model cannot be loaded, up to the first fatal one."""
    # check the adapter's base first: without it only the adapter's own files can be read
    try:
        whole = base_of(model, 0).model
        if (folder := adapter_folder(model)) is not None:
            refuse_adapter(model.lora if trains else None, folder)
    except UserError as err:
        yield ModelFlaw.of(err)
        return
    if folder is not None:
        # an adapter goes on as it is: the base behind it is trained through it, also where the recipe has no `lora`
        whole = whole.model_copy(update={"lora": Lora()})
    # generators, so that checks after a fatal flaw do not run
    parts = (
        *(_place(whole), _unmet(model_needs(whole)), _config(whole), _ends(whole), _weights(whole)),
        *(_tokenizer(model, whole), _vocabulary(model, whole)),
    )
    for flaw in chain.from_iterable(parts):
        yield flaw
        if flaw.is_fatal:
            return


def _place(model: Model) -> Iterator[ModelFlaw]:
    path = model.path
    if path.startswith("builtin:"):
        names = ["builtin:tiny", TINY_VISION, *BUILT_IN]
        if path not in names:
            yield ModelFlaw(f"no builtin model `{path}`", f"there are {', '.join(f'`{name}`' for name in names)}")
        elif path in BUILT_IN:
            try:
                BUILT_IN[path].file()
            except SetupError as err:
                yield ModelFlaw.of(err)
        return
    folder = path_of(path)
    file = folder / model.gguf_file if model.gguf_file and folder.is_dir() else folder
    if path.endswith(".gguf") or (model.gguf_file and folder.is_dir()):
        if not file.is_file():
            yield ModelFlaw(f"no such file: {file}")
        return
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            inside = sorted(path.name for path in folder.glob("*.gguf"))
            hint = (
                f"name the file with `model.gguf_file: {inside[0]}`" if inside else "name a folder with `config.json`"
            )
            yield ModelFlaw(f"`{folder}` holds no model: there is no `config.json`", hint)
    elif folder.exists():
        yield ModelFlaw(
            f"`{path}` is a file, not a model", "`model` is a hub id, a folder, a .gguf file or builtin:NAME"
        )
    elif _is_local(path):
        yield ModelFlaw(f"no model folder `{path}`", "`model` is a hub id, a folder, a .gguf file or builtin:NAME")
    elif model_files(model).path("config.json") is None:
        offline = why_offline()
        yield ModelFlaw(
            f"the model `{path}` is not here: no folder of that name, and nothing in the hub's cache"
            + (f"; {offline}" if offline else ""),
            f"`hf download {path}` fetches it, or name a folder, a .gguf file or builtin:NAME",
            # with a hub at hand loading will fetch it
            is_fatal=offline is not None,
        )


def _unmet(needs: Iterable[PackageNeed], mend: str = "") -> Iterator[ModelFlaw]:
    for need in needs:
        try:
            need.require()
        except SetupError as err:
            yield replace(ModelFlaw.of(err), hint=f"{err.hint}{mend}")


def _config(model: Model) -> Iterator[ModelFlaw]:
    path = model_files(model).path("config.json")
    if path is None:
        return
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as err:
        yield ModelFlaw(f"`{path}` cannot be read: {err}")
        return
    if not isinstance(config, dict):
        yield ModelFlaw(f"`{path}` is no JSON object")
        return
    yield from _kind(model, config)
    yield from _quantised(model, config)
    # a model of text and images has the sizes of its text part in a section of its own
    inner = config.get("text_config")
    text = inner if isinstance(inner, dict) else config
    yield from chain.from_iterable(
        _wrong_values(section) for section in ([config] if text is config else [config, text])
    )
    ropes, rope = _table("../../modeling_rope_utils.py", "ROPE_INIT_FUNCTIONS") | {"default"}, text.get("rope_scaling")
    kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, dict) else "default"
    if len(ropes) > 1 and kind not in ropes:
        yield _wrong("rope_type", kind, f"transformers has {', '.join(sorted(ropes))}")
    hidden, heads, kv_heads = (text.get(name) for name in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    if not isinstance(hidden, int) or not isinstance(heads, int) or heads < 1:
        return
    if hidden % heads and not text.get("head_dim"):
        yield ModelFlaw(
            f"`config.json`: `hidden_size` {hidden:,} does not divide into `num_attention_heads` {heads}",
            "one of the two is wrong, or `head_dim` is missing",
        )
    elif isinstance(kv_heads, int) and kv_heads > 0 and heads % kv_heads:
        yield ModelFlaw(
            f"`config.json`: `num_attention_heads` {heads} is no multiple of `num_key_value_heads` {kv_heads}"
        )


def _ends(model: Model) -> Iterator[ModelFlaw]:
    """Ids that are to end a completion and are none: loading takes them as they stand."""
    files = model_files(model)
    for name in ("config.json", "generation_config.json"):
        found = files.json(name)
        if found is None and name != "config.json" and (path := files.path(name)) is not None:
            yield ModelFlaw(f"`{path}` cannot be read: it is no JSON object", "is the download whole?")
        for holder in (found, (found or {}).get("text_config")):
            said = holder.get("eos_token_id") if isinstance(holder, dict) else None
            ids = said if isinstance(said, list) else [said] if said is not None else []
            if not all(type(one) is int and one >= 0 for one in ids):
                yield _wrong("eos_token_id", said, "it is an id, or a list of ids, of tokens that end an answer", name)


def _kind(model: Model, config: dict[str, Any]) -> Iterator[ModelFlaw]:
    kind, version = config.get("model_type"), ""
    with suppress(PackageNotFoundError):
        version = metadata.version("transformers")
    # `_table` reads the source as text: the import takes seconds, and `grpo check` is to answer at once
    known = _table("auto_mappings.py", "CONFIG_MAPPING_NAMES") | _table("configuration_auto.py", "CONFIG_MAPPING_NAMES")
    if not known:  # another transformers keeps its tables elsewhere
        return
    if isinstance(kind, str) and kind in known:
        causal = _table("modeling_auto.py", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES")
        seeing = _table("modeling_auto.py", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES")
        if model.kind == "vision" and seeing and kind not in seeing:
            yield ModelFlaw(
                f"`{model.path}`, of the type `{kind}`, reads no images",
                "take a model that does, such as Qwen2.5-VL, or leave `data.images` out",
            )
        elif model.kind == "text" and causal and kind not in causal and kind in seeing:
            yield ModelFlaw(
                f"`{model.path}`, of the type `{kind}`, reads images, and the recipe shows it none",
                "name the column of the rows' images in `data.images`",
            )
        elif model.kind == "text" and causal and kind not in causal:
            yield ModelFlaw(
                f"`{model.path}` is of the type `{kind}`, which has no causal language model in transformers {version}",
                "only models that go on from a text can be trained here",
            )
        return
    if config.get("auto_map"):
        yield ModelFlaw(
            f"`{model.path}` needs code that comes with it (`auto_map`), and such code is never run",
            "take a model whose type is part of transformers, or one that was converted to it",
        )
        return
    said = f"of the type `{kind}`, which transformers {version} does not know" if kind else "of no type"
    near = nearest(str(kind), known) if kind else None
    hint = f"did you mean `{near}`? " if near else ""
    yield ModelFlaw(
        f"`{model.path}` is {said} (`model_type` in `config.json`)", f"{hint}a newer transformers may know it"
    )


SIZES = {
    **dict.fromkeys(("vocab_size", "hidden_size", "intermediate_size", "max_position_embeddings"), (1, 1_000_000_000)),
    **dict.fromkeys(("num_hidden_layers", "num_attention_heads", "num_key_value_heads"), (1, 10_000)),
    "head_dim": (0, 100_000),
}
"""The least and the most that a size can be."""
DTYPES = {"auto", "half", "bfloat16", "float", "double", *(f"float{bits}" for bits in (16, 32, 64))}
JSON_TYPES: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str, "list": list, "dict": dict}


def _wrong_values(config: dict[str, Any]) -> Iterator[ModelFlaw]:
    """Values that no model can be made of: those that break the types and bounds in the source of transformers'
    configuration class, and impossible sizes, dropout rates, activations and dtypes."""
    for name, field in _fields(str(config.get("model_type"))).items():
        if name not in config:
            continue
        value = config[name]
        kinds = [JSON_TYPES.get(one.split("[")[0]) for one in field.types if one != "None"]
        if not ("None" in field.types if value is None else None in kinds or type(value) in kinds):
            yield _wrong(name, value, f"transformers takes {' or '.join(field.types).replace('None', 'null')} there")
        elif isinstance(value, int | float) and not field.low <= value <= field.high:
            yield _wrong(name, value, f"transformers takes {field.low:g} to {field.high:g} there")
    for name, value in config.items():
        is_number = type(value) in (int, float)
        low, high = SIZES.get(name, (-math.inf, math.inf))
        if is_number and not low <= value <= high:
            yield _wrong(name, value, f"it is a size of {low:,} to {high:,}")
        elif (name == "attention_dropout" and value is None) or (
            name.endswith(("dropout", "_pdrop", "_drop")) and is_number and not 0 <= value < 1
        ):
            yield _wrong(name, value, "a share that is dropped is at least 0 and below 1")
        elif name in ("dtype", "torch_dtype") and not isinstance(value, dict | None):
            written = value.removeprefix("torch.") if isinstance(value, str) else ""
            if written not in DTYPES and not written.startswith("float8"):
                yield _wrong(name, value, "that is no type of weights")
        elif name == "hidden_act" and isinstance(value, str) and value not in (_activations() or (value,)):
            yield _wrong(name, value, "transformers has no such activation")


def _wrong(name: str, value: object, why: str, file: str = "config.json") -> ModelFlaw:
    text = json.dumps(value, ensure_ascii=False)
    return ModelFlaw(f"`{file}`: `{name}` is {text if len(text) <= 40 else f'{text[:37]}...'}: {why}")


class _Field(NamedTuple):
    """A field of a configuration as transformers' class has it."""

    types: Sequence[str]
    low: float
    high: float
    default: object
    """None where it is no constant."""


@lru_cache(maxsize=8)
def _fields(kind: str) -> dict[str, _Field]:
    """The fields of transformers' class of a configuration; none where the class does not check them."""
    fields: dict[str, _Field] = {}
    for module in dict.fromkeys((kind.replace("-", "_"), kind.removesuffix("_text"))):
        source = _source(f"models/{module}/configuration_{module}.py") if module.isidentifier() else []
        checked = [n for n in source if isinstance(n, ast.ClassDef) and "strict" in map(ast.unparse, n.decorator_list)]
        named = (n.body for n in checked if f"model_type = {kind!r}" in map(ast.unparse, n.body))
        for one in next(named, ()):
            if not isinstance(one, ast.AnnAssign) or not isinstance(one.target, ast.Name):
                continue
            # the bounds are those in `interval(min=0.0, max=1.0)(default=0.02)`
            default = one.value
            given: dict[str | None, float] = {}
            if isinstance(default, ast.Call) and isinstance(default.func, ast.Call):
                given = {word.arg: float(ast.literal_eval(word.value)) for word in default.func.keywords}
            low, high = given.get("min", -math.inf), given.get("max", math.inf)
            constant = default.value if isinstance(default, ast.Constant) else None
            fields[one.target.id] = _Field(ast.unparse(one.annotation).split(" | "), low, high, constant)
        if fields:
            break
    return fields


@lru_cache(maxsize=1)
def _activations() -> frozenset[str]:
    """The names in transformers' table of activations; empty if this version keeps the table elsewhere."""
    for node in _source("activations.py"):
        if (
            isinstance(node, ast.Assign)
            and ast.unparse(node.targets[0]) == "ACT2CLS"
            and isinstance(node.value, ast.Dict)
        ):
            return frozenset(str(one.value) for one in node.value.keys if isinstance(one, ast.Constant))
    return frozenset()


def _quantised(model: Model, config: dict[str, Any]) -> Iterator[ModelFlaw]:
    section = config.get("quantization_config")
    if not isinstance(section, dict):
        return
    method = section.get("quant_method")
    # bitsandbytes wrote no method of its own for years
    if method is None and (section.get("load_in_4bit") or section.get("load_in_8bit")):
        method = "bitsandbytes"
    why = f"the model's quantisation (`{method}`)"
    needs = (PackageNeed(module, name, why) for module, name in QUANTIZERS.get(str(method), ()))
    unmet = next(_unmet(needs, ", or take the model as it was before it was quantised"), None)
    if unmet is not None:  # the first is enough: without it the others are not even asked for
        yield unmet
        return
    if model.lora is None:
        yield ModelFlaw(
            f"the weights of `{model.path}` are quantised (`{method}`): they cannot be trained as they are",
            "add `model.lora: {r: 16}` to train adapters on them, or take the model as it was before",
            is_fatal=False,
        )


def _weights(model: Model) -> Iterator[ModelFlaw]:
    if model.path.startswith("builtin:") or model.path.endswith(".gguf") or model.gguf_file:
        return
    files = model_files(model)
    config = files.json("config.json")
    if config is None:
        return
    kind = config.get("model_type")
    config = {name: one.default for name, one in _fields(str(kind)).items() if one.default is not None} | config
    # in the hub's cache a missing file may only not be downloaded yet
    if wrong := wrong_weights(files, config, is_whole=files.folder is not None):
        yield ModelFlaw(
            f"`{model.path}`: {wrong}", "do weights and `config.json` belong together, and is the download whole?"
        )


def _tokenizer(model: Model, whole: Model) -> Iterator[ModelFlaw]:
    """Whether there is a tokenizer, and its `tokenizer.json` can be read; a name of the hub may have one there."""
    if model.tokenizer is None and (
        whole.path.startswith("builtin:") or whole.path.endswith(".gguf") or whole.gguf_file
    ):
        return
    # a missing path would be looked up on the hub, which would report a missing repository
    named = model.tokenizer
    if named is not None and _is_local(named) and not path_of(named).is_dir():
        yield ModelFlaw(f"no tokenizer folder `{named}`", "`model.tokenizer` is a folder with a tokenizer, or a hub id")
        return
    files = tokenizer_files(model)
    if files.folder is not None and not any(list(files.folder.glob(name)) for name in TOKENIZERS):
        yield ModelFlaw(
            f"`{files.folder}` holds no tokenizer: there is no `tokenizer.json`",
            "name a folder or a hub id that has one in `model.tokenizer`",
        )
        return
    path = files.path("tokenizer.json")
    held = files.json("tokenizer.json") if path is not None else None
    if path is not None and held is None:
        yield ModelFlaw(f"`{path}` cannot be read: it is no JSON object", "is the download whole?")
    for key, kind in (("added_tokens", list), ("model", dict)):
        if held is not None and not isinstance(held.get(key), kind):
            yield ModelFlaw(f"`{path}` holds no tokenizer: it has no `{key}`", "is the download whole?")
            return
    settings, name = files.json("tokenizer_config.json"), "tokenizer_config.json"
    if settings is None:
        if (path := files.path(name)) is not None:
            yield ModelFlaw(f"`{path}` cannot be read: it is no JSON object", "is the download whole?")
        return
    for key in ("bos_token", "eos_token", "pad_token", "unk_token"):
        if not isinstance(settings.get(key), str | dict | None):
            yield _wrong(key, settings[key], "it is the text of a token", name)
    if not isinstance(most := settings.get("model_max_length"), int | float | None):
        yield _wrong("model_max_length", most, "it is a number of tokens", name)
    named_class = str(settings.get("tokenizer_class") or "").removesuffix("Fast")
    if settings.get("auto_map") and (held is None or (named_class and not _is_tokenizer(named_class))):
        yield ModelFlaw(
            f"the tokenizer of `{model.path}` needs code that comes with it (`auto_map`), and such code is never run",
            "name a tokenizer with a `tokenizer.json` in `model.tokenizer`",
        )


def _is_tokenizer(name: str) -> bool:
    """Whether transformers has a tokenizer of this name; true where this version keeps its table elsewhere."""
    source = "\n".join(map(ast.unparse, _source("models/auto/tokenization_auto.py")))
    return not source or f"'{name}'" in source or f"'{name}Fast'" in source


def _is_local(name: str) -> bool:
    """Whether a name is a path, and none of the hub's."""
    return name.startswith(("/", ".", "~")) or name.count("/") > 1


def _vocabulary(model: Model, whole: Model) -> Iterator[ModelFlaw]:
    files, config = tokenizer_files(model), model_files(whole).json("config.json")
    tokenizer = files.json("tokenizer.json")
    if tokenizer is None or config is None or whole.gguf_file:
        return
    text = config.get("text_config")
    size = (text if isinstance(text, dict) else config).get("vocab_size")
    # compare the largest id, not the count: embedding tables are often padded beyond the vocabulary
    added, inner = tokenizer.get("added_tokens"), tokenizer.get("model")
    ids = [one.get("id") for one in added if isinstance(one, dict)] if isinstance(added, list) else []
    vocabulary = inner.get("vocab") if isinstance(inner, dict) else None
    if isinstance(vocabulary, dict):
        ids += list(vocabulary.values())
    elif isinstance(vocabulary, list):  # Unigram: the id is the place
        ids.append(len(vocabulary) - 1)
    most = max((i for i in ids if isinstance(i, int)), default=None)
    if isinstance(size, int) and most is not None and most >= size:
        yield ModelFlaw(
            f"the tokenizer has a token {most:,}, the model knows {size:,} (`vocab_size`): they do not belong together",
            "set `model.tokenizer` to the tokenizer that the model was trained with",
        )


@lru_cache(maxsize=8)
def _table(file: str, name: str) -> frozenset[str]:
    """The model types in one of transformers' tables; empty if this version keeps them elsewhere."""
    found: set[str] = set()
    for node in _source(f"models/auto/{file}"):
        # the name stands at the head of the assignment; inside other tables' values it may occur too
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr) and name in ast.dump(node)[:400]:
            found |= {
                str(leaf.value)
                for leaf in ast.walk(node)
                if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str) and leaf.value.islower()
            }
    return frozenset(found)


def _source(file: str) -> list[ast.stmt]:
    """The statements of a file of transformers; none where it is not there."""
    spec = find_spec("transformers")
    if spec is None or spec.origin is None:
        return []
    try:
        return ast.parse((Path(spec.origin).parent / file).read_text(encoding="utf-8")).body
    except (OSError, SyntaxError):
        return []
