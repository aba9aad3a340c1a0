"""How the next token is chosen: part of a request on every border it crosses."""

from dataclasses import dataclass

from memra.types import TokenId


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The sampling settings of one request, already validated.

    Applied in this order: bias, penalties, temperature, top-k, softmax, top-p, min-p, draw.

    Attributes:
        temperature: 0 or less means greedy (argmax, lowest id on a tie).
        top_k: keep this many most likely tokens; 0 is off.
        top_p: keep the smallest set of most likely tokens whose mass reaches this; 1 is off; at least one is kept.
        min_p: drop tokens less likely than this fraction of the most likely one; 0 is off.
        frequency_penalty: subtracted per earlier occurrence in the history window.
        presence_penalty: subtracted once for every token that occurred in the history window.
        repetition_penalty: divides a positive and multiplies a negative logit of a token that occurred; 1 is off.
        seed: key of the counter-based generator, 0 to 2**64 - 1; the counter is the token's position.
        logit_bias: distinct tokens and what is added to their logits.
        num_top_logprobs: most likely tokens to list beside every generated one, at most 20; 0 gives the generated
            token's log probability alone, None none at all.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    logit_bias: tuple[tuple[TokenId, float], ...] = ()
    num_top_logprobs: int | None = None

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken without a draw."""
        return self.temperature <= 0.0
