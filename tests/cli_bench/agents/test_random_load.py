from memra.cli_bench.agents.random_load import LoadMix, RandomLoad, RandomRequest

MIX = LoadMix(["a", "b"])


def _draw(seed: str, count: int = 200) -> list[RandomRequest]:
    load = RandomLoad(MIX, seed=seed)
    return [load.draw() for _ in range(count)]


def test_a_seed_draws_the_same_requests():
    assert _draw("x") == _draw("x")
    assert _draw("x") != _draw("y")


def test_every_kind_is_drawn():
    requests = _draw("x")
    assert {request.model for request in requests} == {"a", "b"}
    assert {request.lane for request in requests} == {"interactive", "judge", "harvest"}
    assert {request.salt for request in requests} == {None, "red", "blue"}
    assert any(request.leaving.after_events for request in requests)
    assert any(request.leaving.after_s for request in requests)
    assert {"seed" in request.options for request in requests} == {True, False}
    assert len({request.beginning for request in requests}) < len(requests)


def test_a_salt_is_sent_where_there_is_one():
    for request in _draw("x", 20):
        for body in (request.chat_body(), request.completion_body()):
            assert body.get("cache_salt") == request.salt
            assert body["model"] == request.model
