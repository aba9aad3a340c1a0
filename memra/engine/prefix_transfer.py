"""Remembered prefixes on their way out to a hand-off file and back in, model by model.

Trade: between the prefix caches and the file's two ends. Entries come in as blobs of the host store, one a call, so
that no step waits for more than one; the executor gets them when a prompt asks. Called by the engine.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from memra.engine.handoff_format import ModelStamp
from memra.engine.handoff_order import Candidate, order_for_export
from memra.engine.handoff_reader import HandoffReader, ImportReport, ReadFrame
from memra.engine.host_shares import tenant_of
from memra.engine.loaded_model import LoadedModel
from memra.engine.prefix_cache import PrefixCache
from memra.engine.prefix_handoff import ExportReport, HandoffEntry, HandoffWriter, StateSnapshot
from memra.engine.prefix_tree import PrefixNode
from memra.errors import HandoffError
from memra.settings import HostTierSettings

log = logging.getLogger(__name__)

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Remembering:
    """A model and what is remembered of it."""

    model: LoadedModel
    prefixes: PrefixCache

    @property
    def stamp(self) -> ModelStamp:
        """What must be equal for its pages to be another's."""
        executor = self.model.executor
        return ModelStamp(
            name=self.model.name,
            identity=self.model.identity,
            backend=executor.backend,
            page_tokens=executor.page_tokens,
            page_bytes=self.prefixes.holdings.page_bytes,
            state_bytes=self.prefixes.holdings.state_bytes,
        )


def export_prefixes(remembering: Iterable[Remembering], settings: HostTierSettings) -> ExportReport:
    """Write everything that is remembered, the newest first under the cap; blocks as long as the disk takes.

    Raises:
        HandoffError: no file is named, or it cannot be written.
    """
    if settings.handoff is None:
        raise HandoffError("no hand-off file is named; set MEMRA_KV_HOST_HANDOFF")
    models = list(remembering)
    nodes = [(one, node) for one in models for node in one.prefixes.holdings.walk()]
    places = {id(node): place for place, (_, node) in enumerate(nodes)}
    candidates = [
        Candidate(places.get(id(node.parent)), node.last_used, one.prefixes.holdings.count_bytes(node))
        for one, node in nodes
    ]
    cap_bytes = settings.handoff_mb * _MIB or None
    order = order_for_export(candidates, cap_bytes=cap_bytes)
    num_resident = 0
    with HandoffWriter(settings.handoff, [one.stamp for one in models], io_mode=settings.handoff_io) as writer:
        numbers: dict[int, int] = {}
        for place in order.places:
            one, node = nodes[place]
            is_resident = node.page_id is not None
            entry = _entry_of(one, node, numbers)
            if entry is not None:
                numbers[id(node)] = writer.add(entry)
                num_resident += is_resident
        return writer.finish(demoted_from_device=num_resident, skipped_over_cap=order.num_skipped)


def _entry_of(one: Remembering, node: PrefixNode, numbers: Mapping[int, int]) -> HandoffEntry | None:
    """Return what is written of a node; None when its bytes are lost, or those of a page before it."""
    parent = node.parent
    if parent is None or (parent.parent is not None and id(parent) not in numbers):
        return None
    page = one.prefixes.holdings.fetch_page(node)
    if page is None:
        return None
    states = [(snapshot.offset, one.prefixes.holdings.fetch_state(snapshot)) for snapshot in node.snapshots.values()]
    return HandoffEntry(
        model=one.model.name,
        namespace=node.namespace,
        parent=numbers.get(id(parent)),
        token_ids=tuple(np.frombuffer(node.tokens, np.int32).tolist()),
        page=page,
        states=tuple(StateSnapshot(offset, data) for offset, data in states if data is not None),
    )


class PrefixImport:
    """A hand-off file that is being read."""

    def __init__(self, remembering: Iterable[Remembering], settings: HostTierSettings) -> None:
        """Take the file, which is gone afterwards, and read its header.

        Raises:
            HandoffError: no file is named, or it is refused.
        """
        if settings.handoff is None:
            raise HandoffError("no hand-off file is named; set MEMRA_KV_HOST_HANDOFF")
        models = list(remembering)
        self._caches = {str(one.model.name): one.prefixes for one in models}
        self._reader = HandoffReader.open(settings.handoff, [one.stamp for one in models], io_mode=settings.handoff_io)
        self._nodes: dict[int, PrefixNode] = {}
        self._purged: set[str] = set()
        self.num_entries = 0
        self.num_bytes = 0
        self.num_skips = 0

    @property
    def report(self) -> ImportReport:
        """What the file's header says."""
        return self._reader.report

    def take_one(self) -> bool:
        """Take one entry in; false when there is none left, and the file is closed."""
        frame = self._reader.next_entry()
        if frame is None:
            log.info("%d prefix entries came from the hand-off file, %d were skipped", self.num_entries, self.num_skips)
            return False
        if not self._insert(frame):
            self.num_skips += 1
        return True

    def leave_out(self, tenant: str) -> None:
        """Skip what is to come of a tenant: it was purged meanwhile."""
        self._purged.add(tenant)

    def close(self) -> None:
        """Leave the rest of the file unread."""
        self._reader.close()

    def _insert(self, frame: ReadFrame) -> bool:
        entry = frame.entry
        cache = None if entry is None else self._caches.get(entry.model)
        if entry is None or cache is None or tenant_of(entry.namespace) in self._purged:
            return False
        parent = cache.root(entry.namespace) if entry.parent is None else self._nodes.get(entry.parent)
        # A page before it may have been dropped since, for its room.
        if parent is None or (entry.parent is not None and parent.parent is None):
            return False
        tokens = np.array(entry.token_ids, np.int32).tobytes()
        states = {state.offset: state.data for state in entry.states}
        node = cache.insert(parent, tokens, entry.page, states)
        if node is None:
            return False
        self._nodes[frame.number] = node
        self.num_entries += 1
        self.num_bytes += len(entry.page) + sum(map(len, states.values()))
        return True
