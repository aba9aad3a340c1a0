"""How likely a prompt's own tokens were, read off the logits of its rows.

Knows one sequence and rows of logits; refuses to know batches and events. A row tells of the token after it, so the
prompt's first token has no likelihood, and its last row belongs to the answer. Called by `model_runner`.
"""

import numpy as np
from numpy.typing import NDArray

from memra.engine.sampler import score_token
from memra.engine.sequence import Sequence
from memra.messages.generation import TokenLogprob


def score_rows(sequence: Sequence, rows: NDArray[np.float32]) -> tuple[TokenLogprob, ...]:
    """Return the likelihoods of the prompt's next tokens, each once, also where rows are computed again.

    Args:
        sequence: whose next rows these are, not yet marked as computed.
        rows: float32 `[num_rows, vocab_size]`, one for each.

    Raises:
        EngineFaultError: a logit is not a number.
    """
    prompt, start = sequence.request.prompt_ids, sequence.num_computed_tokens
    num_top = sequence.request.sampling.num_top_logprobs or 0
    scores = [TokenLogprob(prompt[0], None)] if sequence.num_scored_tokens == 0 else []
    first = sequence.num_scored_tokens + len(scores)
    for position in range(first, min(start + len(rows) + 1, len(prompt))):
        row = rows[position - 1 - start]
        scores.append(score_token(row, prompt[position], position=position, num_top=num_top))
    sequence.num_scored_tokens += len(scores)
    return tuple(scores)
