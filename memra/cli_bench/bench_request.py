"""What the user asked to be measured: which model, by whom, and which sections.

Plain values; refuses to know how anything is measured. Made by `run`, read by `model_bench`.
"""

from dataclasses import dataclass
from pathlib import Path

from memra.cli_bench.served_bench import ServedPlan


@dataclass(frozen=True, slots=True)
class BenchModel:
    """A model that is on this machine.

    Attributes:
        vocab_size: tokens to draw from.
        description: family, type and size, for the heading.
        file_bytes: of the model on disk.
        cache_bytes_per_token: keys and values of all layers in the server.
        page_tokens: of the server's cache.
    """

    name: str
    path: Path
    context_tokens: int
    vocab_size: int
    description: str
    file_bytes: int = 0
    cache_bytes_per_token: int = 0
    page_tokens: int = 64


@dataclass(frozen=True, slots=True)
class Engines:
    """Who is measured.

    Attributes:
        executors: names of memra's executors, the main one first.
        llama_python: the Python that has llama-cpp-python; None leaves llama.cpp out.
        num_threads: for each of them.
    """

    executors: tuple[str, ...]
    llama_python: str | None
    num_threads: int


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How `memra run` is started where a section needs it, and what the bare engine must share with it.

    Attributes:
        arguments: of `memra run`, beside the model and the address.
        api_key: that opens it.
        chunk_tokens: prompt tokens of a step.
        max_rows: sequences at the same time.
    """

    arguments: tuple[str, ...] = ()
    api_key: str | None = None
    chunk_tokens: int = 256
    max_rows: int = 16


@dataclass(frozen=True, slots=True)
class Sections:
    """What is measured beside each other, each in a part of the report.

    Attributes:
        speed: prefill, decoding, first token, load and memory of the bare engines.
        start: how long `memra run` takes to be ready, and its memory.
        busy: steps beside a process that wants a processor.
        errors: distance from the float32 reference.
        served: the server against the bare engine; None leaves it out.
        other_url: another server, driven in turns with ours; None for none.
        other_key: its key.
    """

    speed: bool = True
    start: bool = False
    busy: bool = False
    errors: bool = False
    served: ServedPlan | None = None
    other_url: str | None = None
    other_key: str | None = None

    @property
    def needs_engines(self) -> bool:
        """Whether any part needs the bare engines loaded."""
        return self.speed or self.busy or self.errors or self.served is not None
