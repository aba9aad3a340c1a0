"""Which layers of a decoder see a window of recent tokens, as GGUF says it.

Trade: the two keys under `attention.sliding_window`. Called by the families that mix local and global layers. Refuses
to know what else differs between the two kinds.
"""

from memra.errors import CorruptFileError
from memra.models.metadata import Metadata

_PATTERN_KEY = "attention.sliding_window_pattern"


def read_window(metadata: Metadata, default: int | None = None) -> int | None:
    """Tokens that a local layer sees; 0 and absence are the default, None is no window.

    Raises:
        CorruptFileError: it is no positive integer.
    """
    if metadata.optional_number("attention.sliding_window") is None:
        return default
    return metadata.positive_integer("attention.sliding_window")


def read_local_layers(metadata: Metadata, num_layers: int, *, period: int | None) -> list[bool]:
    """Tell for every layer whether it sees a window only.

    A file gives a period (the last layer of each is global), one flag for each layer, or nothing.

    Args:
        metadata: of the file.
        num_layers: of the model.
        period: what nothing stands for; None: the file must say it.

    Raises:
        CorruptFileError: there are fewer flags than layers, or the value is neither flags nor a period.
    """
    pattern = metadata.get(_PATTERN_KEY)
    if isinstance(pattern, (list, tuple)):
        if len(pattern) < num_layers:
            raise CorruptFileError(f"{metadata.key(_PATTERN_KEY)} has {len(pattern)} entries for {num_layers} layers.")
        return [bool(flag) for flag in pattern[:num_layers]]
    period = metadata.positive_integer(_PATTERN_KEY, period)
    return [index % period < period - 1 for index in range(num_layers)]
