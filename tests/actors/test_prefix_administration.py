"""Remembered prefixes are trimmed, purged and handed on by messages, while requests run."""

from pathlib import Path
from typing import Any

import pytest

from memra.engine.handoff_reader import ImportReport
from memra.engine.prefix_handoff import ExportReport
from memra.errors import HandoffError, OverloadedError
from memra.messages.prefixes import PrefixesTrimmed, TenantPurged


class Engine:
    """Adds the administration of prefixes to the fake engine."""

    def __new__(cls, kit: Any, **options: Any) -> Any:
        class Administered(kit.Engine):
            def trim(self) -> PrefixesTrimmed:
                return PrefixesTrimmed(3, reclaimed_bytes=300, still_owned_bytes=len(self.rows))

            def purge_tenant(self, tenant: str) -> TenantPurged:
                return TenantPurged(tenant, 1, 0, 0, 2, len(self.rows))

            def export_prefixes(self, *, force: bool) -> ExportReport:
                if not force:
                    raise HandoffError("requests are being worked on")
                return ExportReport(str(Path("handoff")), 1, 2, 200, 0, 0.5)

            def import_prefixes(self) -> ImportReport:
                return ImportReport(str(Path("handoff")), 2, 200, 1, ())

        return Administered(**options)


async def test_the_worker_answers_between_two_steps(kit: Any):
    async with kit.open_house(make_engine=lambda: Engine(kit)) as running:
        assert (await running.house.trim_prefixes()).prefix_entries == 3
        assert (await running.house.purge_tenant("a")).tenant == "a"
        assert (await running.house.export_prefixes(force=True)).entries == 2
        assert (await running.house.import_prefixes()).header_entries == 2
        assert (await kit.read(running.house, kit.request())).text == "abcde"


async def test_a_refusal_reaches_the_asker_and_leaves_the_worker_alive(kit: Any):
    async with kit.open_house(make_engine=lambda: Engine(kit)) as running:
        with pytest.raises(HandoffError, match="worked on"):
            await running.house.export_prefixes()
        assert (await kit.read(running.house, kit.request())).text == "abcde"


async def test_without_a_worker_the_asker_is_told_to_come_again(kit: Any):
    async with kit.open_house(make_engine=lambda: Engine(kit)) as running:
        await running.worker.stop(within_s=5)
        with pytest.raises(OverloadedError):
            await running.house.trim_prefixes()
