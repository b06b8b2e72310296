"""What a model reads images with: the processor that makes token ids and pixels of a prompt, and the inputs of a forward pass.

How this works. A processor writes as many image tokens into a prompt as an image costs, and makes the tensors that the vision tower
reads. `Vision.encode` gives the ids, which the rest of the program treats as any prompt's; `Vision.inputs` gives the tensors for
rows of ids that are scored or sampled, with TRL's names. Processors of the Qwen2-VL family are put together from their image
processor and tokenizer (`ImagesOnly`), as their video part needs torchvision; others are loaded whole.
B rows, S tokens of prompt and completion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import AutoImageProcessor, AutoProcessor, Qwen2VLProcessor
from transformers.image_processing_utils import BaseImageProcessor as ImageProcessor
from transformers.processing_utils import ProcessorMixin

from grpo_cli.data.images import MOST_RATIO, RowImage
from grpo_cli.errors import SetupError
from grpo_cli.policy.modes import causal_model
from grpo_cli.policy.tiny import GRIDS

if TYPE_CHECKING:
    from grpo_cli.policy.contract import CausalLM, Tokenizer
    from grpo_cli.recipe.sections.inputs import ImagePixels

CARRIED = {"pixel_values", "image_grid_thw", "pixel_attention_mask"}
"""Tensors of a processor that reach the model."""
KEPT = 64
"""Sets of images whose tensors are kept: those of a step, which is sampled and then scored."""

Inputs = dict[str, Any]
"""Arguments of TRL's scoring, or of a forward pass, by their names."""


class ImagesOnly(Qwen2VLProcessor):  # type: ignore[misc]
    """A processor of the Qwen2-VL family without its video part."""

    def __init__(self, image_processor: ImageProcessor, tokenizer: Tokenizer, chat_template: str | None = None) -> None:
        self.image_token, self.video_token = "<|image_pad|>", "<|video_pad|>"
        self.image_token_id = tokenizer.convert_tokens_to_ids(self.image_token)
        self.video_token_id = tokenizer.convert_tokens_to_ids(self.video_token)
        ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)


def load_processor(name: str, revision: str | None, model_type: str, tokenizer: Tokenizer, pixels: ImagePixels) -> Any:
    """The processor of a model, with the recipe's bounds of an image's size.

    Raises:
        SetupError: its images are bounded in another way. Errors of the libraries pass through.
    """
    if model_type in GRIDS:
        images = AutoImageProcessor.from_pretrained(name, revision=revision, trust_remote_code=False)
        processor: Any = ImagesOnly(images, tokenizer)
    else:
        processor = AutoProcessor.from_pretrained(name, revision=revision, trust_remote_code=False)
        processor.tokenizer = tokenizer
    bound(processor, pixels)
    return processor


def bound(processor: ProcessorMixin, pixels: ImagePixels) -> None:
    """Set the bounds of an image's size in pixels.

    Raises:
        SetupError: this processor has no such bounds.
    """
    wanted = {"shortest_edge": pixels.least, "longest_edge": pixels.most}
    wanted = {name: value for name, value in wanted.items() if value is not None}
    if not wanted:
        return
    images = processor.image_processor
    if not hasattr(images, "merge_size"):
        raise SetupError(
            f"`data.image_pixels` bounds no image of this model, whose processor is `{type(images).__name__}`",
            hint="leave it out; images can be made smaller before",
        )
    images.size = type(images.size)(**{**dict(images.size), **wanted})


@dataclass(eq=False)
class Vision:
    """A processor, the tokens that stand for images or videos, and the tensors for token types that the model takes."""

    processor: Any
    image_ids: frozenset[int]
    typed: str | None

    @classmethod
    def of(cls, processor: ProcessorMixin, model: nn.Module) -> Vision:
        """What a loaded model reads images with.

        Raises:
            SetupError: no token of the model stands for an image.
        """
        import inspect

        base: Any = causal_model(model)
        names = ("image_token_id", "image_token_index", "video_token_id", "video_token_index")
        ids = [found for name in names if isinstance(found := getattr(base.config, name, None), int)]
        if not ids:
            raise SetupError(f"`{type(base).__name__}` has no token for images", hint="take a model that reads images")
        takes = inspect.signature(base.forward).parameters
        typed = next((name for name in ("mm_token_type_ids", "token_type_ids") if name in takes), None)
        return cls(processor, frozenset(ids), typed)

    @property
    def image_id(self) -> int:
        """The token that an image's features replace."""
        return int(self.processor.image_token_id)

    @property
    def most_tokens(self) -> int | None:
        """Most tokens of one image; None where the processor has no bound of pixels."""
        images = self.processor.image_processor
        if not isinstance(self.processor, ImagesOnly):
            return None
        most = int(images.size["longest_edge"]) // (images.patch_size * images.merge_size) ** 2
        # of a narrow image one side cannot become less than a token, so that the area exceeds the bound
        return int(max(most, ceil(sqrt(MOST_RATIO * most))))

    def encode(self, text: str, images: Sequence[RowImage]) -> list[int]:
        """The ids of a rendered prompt with the tokens of its images.

        Raises:
            SetupError: the prompt shows another number of images.
        """
        marks = text.count(self.processor.image_token)
        if marks != len(images):
            raise SetupError(
                f"the chat template shows {marks} of the {len(images)} images of a row",
                hint="is it the template of a model that reads images? name one with `model.chat_template`",
            )
        pictures = [image.picture() for image in images]
        made = self.processor(text=[text], images=[pictures], add_special_tokens=False)
        return [int(one) for one in made["input_ids"][0]]

    @cached_property
    def features(self) -> Any:
        """The tensors of a tuple of images, by name; those of the last `KEPT` tuples are kept."""

        def made(images: tuple[RowImage, ...]) -> Mapping[str, Tensor]:
            text = self.processor.image_token * len(images)
            found = self.processor(text=[text], images=[[i.picture() for i in images]], return_tensors="pt")
            tensors = {
                k: v for k, v in found.items() if k not in ("input_ids", "attention_mask") and "type_ids" not in k
            }
            if unknown := sorted(tensors.keys() - CARRIED):
                raise SetupError(
                    f"the processor of this model makes `{unknown[0]}` of images, which is not carried here",
                    hint="models of the Qwen2-VL family, SmolVLM and Idefics are",
                )
            return tensors

        return lru_cache(maxsize=KEPT)(made)

    def inputs(self, ids_BS: Tensor, images: Sequence[tuple[RowImage, ...]], *, scores: bool) -> Inputs:
        """What goes into the model beside the ids of B rows that show these images; with `num_images`, as TRL wants it, where the
        call `scores`."""
        if not any(images):
            return {}
        parts = [self.features(one) for one in images]
        found: Inputs = {name: stacked([part[name] for part in parts]).to(ids_BS.device) for name in parts[0]}
        if self.typed is not None:
            found[self.typed] = (ids_BS == self.image_id).long()
        if scores:
            found["num_images"] = [len(one) for one in images]
        return found

    def save(self, folder: str | Path) -> None:
        """Write what `load_processor` reads, but for the tokenizer."""
        (self.processor.image_processor if isinstance(self.processor, ImagesOnly) else self.processor).save_pretrained(
            folder
        )


def stacked(parts: Sequence[Tensor]) -> Tensor:
    """[n_1 + n_2 + …, …] the parts, [n_i, …] each, one below the other; filled up with 0 where they are of unequal size behind the
    first axis."""
    sizes = [max(part.shape[axis] for part in parts) for axis in range(1, parts[0].dim())]
    filled = []
    for part in parts:
        lacks = [size - have for size, have in zip(sizes, part.shape[1:], strict=True)]
        filled.append(pad(part, [n for lack in reversed(lacks) for n in (0, lack)]) if any(lacks) else part)
    return torch.cat(filled)


def language_part(model: CausalLM) -> str:
    """The name of the part of a vision model that reads tokens.

    Raises:
        SetupError: it has no such part.
    """
    base: Any = causal_model(model)
    decoder = base.get_decoder()
    name = next((name for name, module in base.named_modules() if module is decoder and name), None)
    if name is None:
        raise SetupError(
            f"`{type(base).__name__}` has no language part of its own", hint="set `model.freeze_vision: false`"
        )
    return str(name)


def freeze_vision(model: CausalLM) -> None:
    """Leave everything but the language part and the head as it is.

    Raises:
        SetupError: as `language_part`.
    """
    part, head = language_part(model), model.get_output_embeddings()
    kept = {id(p) for p in head.parameters()} if head is not None else set()
    for name, parameter in model.named_parameters():
        if not name.startswith(f"{part}.") and id(parameter) not in kept:
            parameter.requires_grad_(False)
