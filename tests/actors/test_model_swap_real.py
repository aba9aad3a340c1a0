"""Real weights that are replaced under running requests: each answer is that of its own weights, token for token."""

from pathlib import Path
from typing import Any

import pytest
import trio

from memra.engine.engine import Engine
from memra.engine.executor_choice import choose_executor, find_native_obstacle
from memra.messages.generation import ReplyDelta, TextPrompt
from memra.messages.models import ModelInstance, ModelState, ModelTerms
from memra.served_models import ServedModels
from memra.settings import EngineSettings, ModelSettings, Settings
from memra.types import ModelName

pytestmark = [
    pytest.mark.models,
    pytest.mark.slow,
    pytest.mark.skipif(find_native_obstacle() is not None, reason="the native engine is not built"),
]

OLD, OTHER = ModelName("old"), ModelName("other")
COUNTING = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,"
LONG, SHORT = 480, 24
"""The long answer takes longer than the load that it runs beside."""


class RealEngine(Engine):
    """The engine, with what the house of fakes asks of its own."""

    thread = 0

    @property
    def rows(self) -> bool:
        return self.has_work

    def release(self) -> None:
        """Nothing holds it up."""


def served(smollm2_path: Path, gemma_path: Path) -> ServedModels:
    settings = Settings(
        models=ModelSettings(arguments=(f"old={smollm2_path}", f"other={gemma_path}")),
        engine=EngineSettings(executor="cpu", device="cpu", kv_memory_mb=64),
    )
    return ServedModels(settings, choose_executor(settings.engine))


async def test_answers_on_both_sides_of_a_swap_are_those_of_their_own_weights(
    kit: Any, smollm2_path: Path, gemma_path: Path
):
    opener = served(smollm2_path, gemma_path)

    def wanted(name: str, model: ModelName, num_tokens: int) -> Any:
        return kit.request(name, model=model, max_new_tokens=num_tokens, prompt=TextPrompt(COUNTING))

    async def read(running: Any, name: str, model: ModelName, num_tokens: int) -> tuple[int, ...]:
        return (await kit.read(running.house, wanted(name, model, num_tokens))).token_ids

    options = {"make_engine": RealEngine, "opener": opener, "models": {OLD: ModelTerms(), OTHER: ModelTerms(True)}}
    async with kit.open_house(**options) as running:
        before = await read(running, "r1", OLD, LONG)
        assert len(before) == LONG
        after = await read(running, "r2", OTHER, SHORT)
    async with kit.open_house(**options) as running:
        async with running.house.open_reply(wanted("r3", OLD, LONG)) as reply, trio.open_nursery() as loads:
            loads.start_soon(running.house.load_model, OLD, str(gemma_path))
            seen: tuple[int, ...] = ()
            num_after = 0
            async for part in reply:
                if isinstance(part, ReplyDelta):
                    seen += part.token_ids
                    num_after += running.residency.current(OLD) == ModelInstance(OLD, 1)
        assert seen == before
        assert num_after > 0, "the answer ended before the swap: nothing was shown"
        assert await read(running, "r4", OLD, SHORT) == after
        await kit.eventually(lambda: not running.residency.holds(ModelInstance(OLD, 0)))
        assert [model.state for model in await running.house.report_models()] == [
            ModelState.LOADED,
            ModelState.UNLOADED,
        ]
