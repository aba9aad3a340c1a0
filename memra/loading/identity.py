"""What a model's files are told apart by, without reading them: a word for whoever keeps something made from them.

Called by the readers of files. Knows the stamps of the file system and the table of tensors; refuses to know who asks.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping

from memra.loading.checkpoint import StoredTensor


def file_stamp(descriptor: int) -> str:
    """Size and times of an open file.

    The time of the last change of the inode is part of it: systems that set all modification times to one date would
    otherwise give two models of one shape the same stamp.
    """
    status = os.fstat(descriptor)
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def identity_of(stamps: Iterable[str], tensors: Mapping[str, StoredTensor]) -> str:
    """Return 64 hex digits that differ when a file was changed or replaced, or when a tensor lies elsewhere.

    Args:
        stamps: of all files, in an order that does not vary.
        tensors: as the checkpoint shows them.
    """
    digest = hashlib.sha256()
    for stamp in stamps:
        digest.update(f"{stamp}\n".encode())
    files: dict[int, int] = {}
    for tensor in tensors.values():
        file = files.setdefault(id(tensor.mapping), len(files))
        place = (tensor.name, tensor.shape, tensor.quant_type, file, tensor.offset, tensor.data.nbytes)
        digest.update(f"{place!r}\n".encode())
    return digest.hexdigest()
