"""Tools whose declaration is of the wrong kind are refused before a template or a grammar sees them."""

from typing import Any

import pytest

SHAPES = {
    "/v1/chat/completions": (
        lambda function: {
            "messages": [{"role": "user", "content": "hi"}],
            "tools": [{"type": "function", "function": function}],
        },
        "tools[0].function",
    ),
    "/v1/responses": (lambda function: {"input": "hi", "tools": [{"type": "function", **function}]}, "tools[0]"),
}


@pytest.mark.parametrize("path", SHAPES)
@pytest.mark.parametrize(
    ("function", "at_fault"),
    [
        ({"parameters": {}}, "name"),
        ({"name": ""}, "name"),
        ({"name": "f", "parameters": [True]}, "parameters"),
        ({"name": "f", "parameters": '{"type": "object"}'}, "parameters"),
        ({"name": "f", "parameters": 1e300}, "parameters"),
        ({"name": "f", "description": {"a": 1}}, "description"),
    ],
)
async def test_a_declaration_of_the_wrong_kind_is_refused_by_its_place(
    start: Any, path: str, function: dict[str, Any], at_fault: str
):
    server = await start()
    wrap, place = SHAPES[path]
    for choice in ("auto", "none", "required"):
        reply = await server.post(path, {"model": "fake", "tool_choice": choice, **wrap(function)})
        assert reply.status_code == 400
        error = reply.json()["error"]
        assert error["param"] == "tools"
        assert f"`{place}.{at_fault}`" in error["message"]


@pytest.mark.parametrize("tool", [{}, {"type": "function"}, {"function": None}, {"function": ["f"]}, {"function": {}}])
@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "f"}}])
async def test_a_tool_without_a_function_is_refused_whatever_is_chosen(start: Any, tool: dict[str, Any], choice: Any):
    server = await start()
    body = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "tools": [tool], "tool_choice": choice}
    reply = await server.post("/v1/chat/completions", body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "tools")


@pytest.mark.parametrize("path", SHAPES)
async def test_a_declaration_may_leave_out_all_but_its_name(start: Any, path: str):
    server = await start()
    wrap, _ = SHAPES[path]
    for function in ({"name": "f"}, {"name": "f", "parameters": None, "description": None}):
        assert (await server.post(path, {"model": "fake", **wrap(function)})).status_code == 200
