"""How far the pairs of a head turn per position: the formulas of scaled rotary embeddings, for every family.

Trade: turns a file's rope keys into the frequencies and the magnitude of a `Rope`. Plain, linear and yarn rotations
come from metadata; Llama 3's scaling comes as a tensor of factors that divide the frequencies, longrope as two of them,
of which one is chosen here. Refuses to know which heads are rotated, and how they are laid out.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from memra.layers.operators import Rope, RopeStyle
from memra.models.metadata import Metadata, read_position_scale

TRUNCATE_KEY = "memra.rope_truncate"
"""Metadata key without a counterpart in GGUF: False where yarn's ramp begins and ends between two pairs."""
_DEFAULT_BASE = 10_000.0
_BETA_FAST, _BETA_SLOW = 32.0, 1.0
"""Turns over the original context between which yarn blends: arXiv 2309.00071, section 3.2."""
_LOG_SLOPE = 0.1
"""Growth of yarn's magnitude with the logarithm of the factor: arXiv 2309.00071, section 3.4."""
_NARROWEST_RAMP = 0.001
"""Keeps a ramp of no width from dividing by zero; the same in ggml and transformers."""
_REFUSED_WITH_YARN: Mapping[str, tuple[float, ...]] = {"rope.scaling.yarn_ext_factor": (1.0, -1.0)}
"""Shares of the ramp other than all of it (-1 is ggml's word for a value that was not set)."""


@dataclass(frozen=True, slots=True)
class Yarn:
    """The parameters of yarn, arXiv 2309.00071.

    Attributes:
        factor: how many times longer the context is than the original one.
        original_tokens: the context that the model was first trained for.
        beta_fast: pairs that turn more often than this over the original context keep their frequency.
        beta_slow: pairs that turn less often than this are slowed down by `factor`.
        truncate: the ramp between the two begins and ends at whole pairs.
    """

    factor: float
    original_tokens: int
    beta_fast: float = _BETA_FAST
    beta_slow: float = _BETA_SLOW
    truncate: bool = True


@dataclass(frozen=True, slots=True)
class Rotation:
    """The angles of a `Rope`: what is the same for queries and keys, in every layer that shares them.

    Attributes are those of `Rope`.
    """

    base: float = _DEFAULT_BASE
    position_scale: float = 1.0
    frequency_factors: str | None = None
    frequencies: tuple[float, ...] | None = None
    magnitude: float = 1.0

    def rope(  # noqa: PLR0913  (a rotation has this many settings)
        self, x: str, *, num_heads: int, head_dim: int, rotary_dims: int, style: RopeStyle, offset: int = 0
    ) -> Rope:
        """Make the operator that turns the heads of buffer `x` by these angles."""
        return Rope(
            x=x,
            num_heads=num_heads,
            head_dim=head_dim,
            rotary_dims=rotary_dims,
            style=style,
            base=self.base,
            position_scale=self.position_scale,
            frequency_factors=self.frequency_factors,
            frequencies=self.frequencies,
            magnitude=self.magnitude,
            offset=offset,
        )


def yarn_frequencies(yarn: Yarn, *, base: float, rotary_dims: int) -> tuple[float, ...]:
    """Radians per position of every pair, `[rotary_dims / 2]`.

    The formula is `_compute_yarn_parameters` of transformers, and `rope_yarn` of ggml, which agree.
    """
    low = _pair_that_turns(yarn.beta_fast, yarn, base=base, rotary_dims=rotary_dims)
    high = _pair_that_turns(yarn.beta_slow, yarn, base=base, rotary_dims=rotary_dims)
    if yarn.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotary_dims - 1)
    width = max(high - low, _NARROWEST_RAMP)
    frequencies = []
    for pair in range(rotary_dims // 2):
        slowed = min(max((pair - low) / width, 0.0), 1.0)
        frequencies.append(base ** (-2 * pair / rotary_dims) * (slowed / yarn.factor + 1 - slowed))
    return tuple(frequencies)


def _pair_that_turns(turns: float, yarn: Yarn, *, base: float, rotary_dims: int) -> float:
    """Return the (fractional) pair that turns this often over the original context."""
    return rotary_dims * math.log(yarn.original_tokens / (turns * 2 * math.pi)) / (2 * math.log(base))


def yarn_magnitude(factor: float, *, mscale: float = 1.0, mscale_all_dim: float = 0.0) -> float:
    """Return the factor on cosines and sines: `m(mscale) / m(mscale_all_dim)` with `m(s) = 0.1 s ln(factor) + 1`.

    `mscale_all_dim` is GGUF's `yarn_log_multiplier`; DeepSeek multiplies its attention's scale by the square of
    `yarn_magnitude(factor, mscale=mscale_all_dim)` besides.
    """
    if factor <= 1:
        return 1.0
    growth = _LOG_SLOPE * math.log(factor)
    return (growth * mscale + 1) / (growth * mscale_all_dim + 1)


def read_yarn(metadata: Metadata, *, truncate: bool = True) -> Yarn | None:
    """Read the parameters of yarn, or None where the file does not scale that way.

    Args:
        metadata: of the file.
        truncate: whether the family's ramp begins and ends at whole pairs, where the file does not say.

    Raises:
        CorruptFileError: a parameter is missing or mistyped.
        UnsupportedModelError: the file asks for a part of yarn alone.
    """
    if metadata.get("rope.scaling.type") != "yarn":
        return None
    for name, accepted in _REFUSED_WITH_YARN.items():
        if metadata.get(name) not in {None, *accepted}:
            raise metadata.unsupported(name, "a part of yarn")
    return Yarn(
        factor=metadata.positive_number("rope.scaling.factor"),
        original_tokens=metadata.positive_integer(
            "rope.scaling.original_context_length", metadata.positive_integer("context_length")
        ),
        beta_fast=metadata.positive_number("rope.scaling.yarn_beta_fast", _BETA_FAST),
        beta_slow=metadata.positive_number("rope.scaling.yarn_beta_slow", _BETA_SLOW),
        truncate=truncate if metadata.get_global(TRUNCATE_KEY) is None else metadata.get_global(TRUNCATE_KEY) is True,
    )


def read_rotation(
    metadata: Metadata,
    *,
    rotary_dims: int,
    base: float | None = None,
    frequency_factors: str | None = None,
    truncate: bool = True,
) -> Rotation:
    """Read a rotation without scaling, with linear scaling, or with yarn.

    Yarn's magnitude is `yarn_attn_factor` where the file has it, as transformers' `attention_factor`; else it follows
    from the factor and from `yarn_log_multiplier`. `attn_factor` multiplies every kind, as in llama.cpp.

    Args:
        metadata: of the file.
        rotary_dims: elements of a head that are rotated.
        base: theta of the angles; None reads `rope.freq_base`.
        frequency_factors: name of a tensor that divides the frequencies; not together with yarn.
        truncate: that of `read_yarn`.

    Raises:
        CorruptFileError: a key is missing or mistyped.
        UnsupportedModelError: the file asks for another kind of scaling.
    """
    base = metadata.positive_number("rope.freq_base", _DEFAULT_BASE) if base is None else base
    magnitude = metadata.optional_number("rope.scaling.attn_factor") or 1.0
    yarn = read_yarn(metadata, truncate=truncate)
    if yarn is None:
        return Rotation(base, read_position_scale(metadata), frequency_factors, magnitude=magnitude)
    if frequency_factors is not None:
        raise metadata.unsupported("rope.scaling.type", f"yarn together with the tensor {frequency_factors}")
    log_multiplier = metadata.optional_number("rope.scaling.yarn_log_multiplier") or 0.0
    own_magnitude = metadata.optional_number("rope.scaling.yarn_attn_factor")
    if own_magnitude is None:
        own_magnitude = yarn_magnitude(yarn.factor, mscale_all_dim=log_multiplier)
    frequencies = yarn_frequencies(yarn, base=base, rotary_dims=rotary_dims)
    return Rotation(base, frequencies=frequencies, magnitude=magnitude * own_magnitude)


def read_longrope(metadata: Metadata, *, short: str, long: str) -> Rotation:
    """Read a rotation whose frequencies are divided by one of two tensors of factors: arXiv 2402.13753.

    One of them serves a model for good, chosen by the context that the file declares, `context_length`: the short
    factors up to the context before scaling, else the long ones, whatever a single sequence's length is. So the bits of
    a row depend on no later one, as they would where the choice is made sequence by sequence. The magnitude is
    `attn_factor` with either, as in transformers and llama.cpp.

    Args:
        metadata: of the file.
        short: name of the factors up to the original context.
        long: name of the factors beyond it.

    Raises:
        CorruptFileError: a key is missing or mistyped.
        UnsupportedModelError: the file asks for another kind of scaling besides.
    """
    if metadata.get("rope.scaling.type") not in {None, "none", "longrope"}:
        raise metadata.unsupported("rope.scaling.type", "tensors of factors together with this scaling")
    context_tokens = metadata.positive_integer("context_length")
    original = metadata.positive_integer("rope.scaling.original_context_length", context_tokens)
    return Rotation(
        base=metadata.positive_number("rope.freq_base", _DEFAULT_BASE),
        frequency_factors=long if context_tokens > original else short,
        magnitude=metadata.optional_number("rope.scaling.attn_factor") or 1.0,
    )
