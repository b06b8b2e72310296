"""Tokens that are never drawn (`sample.ban`): they are masked wherever logits of the policy are read.

A ban is a bias of the output head that no checkpoint holds. Sampling, training passes, the KL reference and evaluation
all use that head, so their log-probs are renormalised in the same way. Samples are therefore on-policy, which they are
not with top-k or with a ban that only the sampler applies. The bias is finite, because an entropy of 0 times minus
infinity would be NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from grpo_cli.errors import RecipeError, SetupError
from grpo_cli.policy.modes import causal_model

if TYPE_CHECKING:
    from torch import Tensor, nn

NEVER = -3e4
"""Added to the logit of a banned token. It fits into float16, and makes the probability 0 in float32 at any temperature
below 100."""


def banned_ids(
    texts: Sequence[str],
    encode: Callable[[str], Sequence[int]],
    spell: Callable[[int], str],
    ends: Collection[int],
    *,
    can_stop: bool,
) -> set[int]:
    """The token id of each text.

    Args:
        texts: as in `sample.ban`.
        encode: returns the token ids of a text, without special tokens.
        spell: the text of a token, special or not.
        ends: the tokens that end a completion.
        can_stop: whether a sample can end without an end token (a stop text, for example).

    Raises:
        RecipeError: a text is no single token of this tokenizer, or nothing would be left to end a sample.
    """
    found = {text: list(encode(text)) for text in texts}
    # a text of two tokens would ban its first one in every other word too
    for text, ids in found.items():
        if len(ids) != 1:
            shown = ", ".join(f"`{spell(token)}`" for token in ids)
            raise RecipeError(
                f"`{text}` is {len(ids)} tokens of this model's tokenizer ({shown}), and a ban takes single tokens away",
                place="`sample.ban`",
                hint="name one of its tokens, with the blank before it where it has one, or end samples there: `sample.stop`",
            )
    banned = {token for ids in found.values() for token in ids}
    if ends and set(ends) <= banned and not can_stop:
        raise RecipeError(
            "it takes every token away that ends a completion: all would be cut at `sample.max_tokens`",
            place="`sample.ban`",
            hint="leave one of them, or say with `sample.stop` what ends a completion",
        )
    return banned


def no_plain_head() -> SetupError:
    """The error for a model whose logits are not a plain product with the output head."""
    return SetupError(
        "`sample.ban` needs a model whose logits are a plain product with its output head, which this one's are not",
        hint="leave `sample.ban` out",
    )


def ban(model: nn.Module, token_ids: Sequence[int]) -> None:
    """Take these tokens out of the model's distribution, for as long as the model lives.

    Raises:
        SetupError: its logits do not come from a plain head.
    """
    if not token_ids:
        return
    import torch

    head: Any = causal_model(model).get_output_embeddings()
    head = getattr(head, "base_layer", head)  # under an adapter
    # a cap bends the logits after the bias (Gemma 2): -3e4 would come out as -30, and the token could still be drawn
    capped = getattr(causal_model(model).config.get_text_config(), "final_logit_softcapping", None)
    if not isinstance(head, torch.nn.Linear) or head.bias is not None or capped is not None:
        raise no_plain_head()
    bias = head.weight.new_zeros(head.weight.shape[0], requires_grad=False)
    bias[torch.tensor(token_ids, device=bias.device)] = NEVER
    _set_bias(head, bias)
    head.banned = tuple(token_ids)


@contextmanager
def lifted(model: nn.Module) -> Iterator[None]:
    """Lift the ban inside the context: a demonstration may hold tokens that samples must not."""
    head: Any = causal_model(model).get_output_embeddings()
    head = getattr(head, "base_layer", head)
    if not hasattr(head, "banned"):
        yield
        return
    bias = head.bias
    _set_bias(head, None)
    try:
        yield
    finally:
        _set_bias(head, bias)


def _set_bias(head: nn.Linear, bias: Tensor | None) -> None:
    """Register the bias as a buffer that is not saved. A parameter would be trained, and every checkpoint would hold
    it."""
    # `register_buffer` refuses a name that is taken by a parameter or by None
    del head.bias
    head.register_buffer("bias", bias, persistent=False)
