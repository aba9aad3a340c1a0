"""A tensor whose bytes in GGML's layout are made from another one when they are asked for, a few rows at a time.

Trade: laziness and bounded memory for every weight that a file stores in a form that GGML has no name for. Refuses to
know those forms: a `Conversion` does. Called by the modules that read quantised safetensors, and by requantisation.
"""

import os
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from memra.loading.model_tensor import bytes_per_row, dequantised, num_rows

CHUNK_VALUES: Final = 1 << 18
"""Values that one thread converts at once: few enough for the intermediate arrays to stay in its cache."""
_MIN_CHUNK_ROWS: Final = 64
"""Files that pack a weight transposed are read in stretches of so many values."""
_MAX_THREADS: Final = 8
_Number = TypeVar("_Number", np.uint8, np.float32)


class Conversion(Protocol):
    """Makes rows of one weight in GGML's layout; `encode` may be called by several threads at once.

    One that undoes a form of numbers has an attribute `precision`, a word of `memra.loading.precision`, and one that
    only orders weights the attribute `source` or `parts`.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Outermost first; `columns` is the last, rows are counted over the others."""
        ...

    @property
    def quant_type(self) -> str:
        """GGML type name of what `encode` gives; may look at scales, never at weights."""
        ...

    def encode(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Rows `begin` to `end`, uint8 `[end - begin, bytes per row]`."""
        ...

    def release(self) -> None:
        """Let the system take back the memory of what was read."""
        ...


class ConvertedTensor:
    """A model's tensor that is converted on demand; a `ModelTensor`.

    Nothing is read when it is made. `data` is made anew for each caller, unless another one still holds it. Used by one
    thread at a time; threads of its own do the work and are gone when it is done.
    """

    def __init__(self, name: str, conversion: Conversion) -> None:
        """Keep both; nothing is read."""
        self.name = name
        self.shape = conversion.shape
        self.conversion = conversion
        self._quant_type: str | None = None
        self._lent: weakref.ref[NDArray[np.uint8]] | None = None

    @property
    def quant_type(self) -> str:
        """GGML type name; looks at the weight's scales once."""
        if self._quant_type is None:
            self._quant_type = self.conversion.quant_type
        return self._quant_type

    @property
    def num_bytes(self) -> int:
        """Size of `data`, without making it."""
        return num_rows(self.shape) * self._row_bytes

    @property
    def data(self) -> NDArray[np.uint8]:
        """All rows converted, uint8 `[num_bytes]`, read-only."""
        kept = None if self._lent is None else self._lent()
        if kept is not None:
            return kept
        made = np.empty((num_rows(self.shape), self._row_bytes), np.uint8)
        self._fill(made, self.conversion.encode)
        data = made.reshape(-1)
        data.flags.writeable = False
        self._lent = weakref.ref(data)
        return data

    def dequantise(self) -> NDArray[np.float32]:
        """All values as a new float32 array in `shape`."""
        values = np.empty((num_rows(self.shape), self.shape[-1]), np.float32)
        self._fill(values, self.rows)
        return values.reshape(self.shape)

    def rows(self, begin: int, end: int) -> NDArray[np.float32]:
        """Values of some rows, float32 `[end - begin, columns]`."""
        data = np.ascontiguousarray(self.conversion.encode(begin, end)).reshape(-1)
        return dequantised(data, (end - begin, self.shape[-1]), self.quant_type, name=self.name)

    def release(self) -> None:
        """Let the system take back the memory of the stored bytes."""
        self.conversion.release()

    def renamed(self, name: str) -> "ConvertedTensor":
        """The same tensor under another name."""
        return ConvertedTensor(name, self.conversion)

    def __repr__(self) -> str:
        return f"ConvertedTensor({self.name!r}, {self.shape}, {self.conversion!r})"

    @property
    def _row_bytes(self) -> int:
        row_bytes = bytes_per_row(self.shape[-1], self.quant_type)
        if row_bytes is None:
            raise ValueError(f"{self.name}: rows of {self.shape[-1]} values have no layout as {self.quant_type}")
        return row_bytes

    def _fill(self, target: NDArray[_Number], make: Callable[[int, int], NDArray[_Number]]) -> None:
        """Make all rows, in threads: chunks know nothing of each other, and numpy works without the interpreter."""

        def fill(chunk: tuple[int, int]) -> None:
            begin, end = chunk
            target[begin:end] = make(begin, end)

        _ = self.quant_type  # before the threads, which would all look for it
        chunks = list(self._chunks())
        num_threads = min(len(chunks), len(os.sched_getaffinity(0)), _MAX_THREADS)
        if num_threads < 2:  # noqa: PLR2004  (nothing to share)
            for chunk in chunks:
                fill(chunk)
            return
        with ThreadPoolExecutor(num_threads, thread_name_prefix="convert") as pool:
            for _ in pool.map(fill, chunks):
                pass

    def _chunks(self) -> Iterator[tuple[int, int]]:
        """Ranges of rows; all but the last are of a multiple of 8, as rows are packed by eight in some files."""
        rows = num_rows(self.shape)
        step = max(CHUNK_VALUES // max(self.shape[-1], 1) // 8 * 8, _MIN_CHUNK_ROWS)
        for begin in range(0, rows, step):
            yield begin, min(begin + step, rows)
