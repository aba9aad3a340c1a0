"""The native engine's threads, and what the library says of itself.

Trade: the life of a thread pool, and the instruction sets and the compiler by name. Refuses to know plans.
"""

from memra_kernels.native_library import NativeError, checked, library

_SPIN_US = 1000  # workers stay awake between the steps of a running generation, and sleep soon after the last


def usable_variants() -> list[str]:
    """Instruction-set variants that this processor runs, best first; all give the same bits.

    Raises:
        NativeUnavailableError: as `library`.
    """
    names: str = library().memra_variants().decode()
    return names.split(",")


def compiler_version() -> str:
    """Name and version of the compiler that built the library.

    Raises:
        NativeUnavailableError: as `library`.
    """
    version: str = library().memra_compiler().decode()
    return version


class ThreadPool:
    """The engine's threads, shared by the plans of one caller; one plan runs at a time."""

    def __init__(self, num_threads: int) -> None:
        """Start `num_threads - 1` workers; the caller of `Plan.run` is the last.

        Raises:
            NativeError: not between 1 and 64, or the system gives no more threads.
        """
        self._lib = library()
        self._handle: int | None = checked(self._lib.memra_pool_new(num_threads, _SPIN_US))
        self.num_threads = num_threads

    @property
    def handle(self) -> int:
        """The native address.

        Raises:
            NativeError: the pool is closed.
        """
        if self._handle is None:
            raise NativeError("the thread pool is closed")
        return self._handle

    def close(self) -> None:
        """Stop and join the workers; every plan on this pool must be closed before. May be called twice."""
        if self._handle is not None:
            self._lib.memra_pool_free(self._handle)
            self._handle = None
