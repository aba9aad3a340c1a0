"""Routes of plugins stand beside memra's own, and a clash is told with its owner."""

from typing import Any

import pytest
from quart import Blueprint

from memra.errors import UsageError
from memra.http.app import build_app
from memra.http.plugin_routes import list_routes, mount_blueprints
from memra.settings import HttpSettings


def blueprint(name: str, *routes: tuple[str, list[str]]) -> Blueprint:
    made = Blueprint(name, __name__)
    for number, (path, methods) in enumerate(routes):
        made.add_url_rule(path, endpoint=f"e{number}", view_func=lambda **_: "hello", methods=methods)
    return made


@pytest.fixture
def app(fake_house: Any):
    return build_app(fake_house(), HttpSettings(), fingerprint="f", has_keys=False)


async def test_a_plugins_route_answers_beside_memras_own(app):
    mount_blueprints(app, [("one (one 1.0)", blueprint("one", ("/walls/<wall>", ["GET"])))])
    client = app.test_client()
    assert await (await client.get("/walls/south")).get_data() == b"hello"
    assert (await client.get("/livez")).status_code == 200


@pytest.mark.parametrize(
    ("routes", "words"),
    [
        ([("/models", ["GET"])], ["GET /models is already memra itself's"]),
        ([("/v1/models/<path:other_name>", ["GET"])], ["GET /v1/models/<path:other_name> is already memra itself's"]),
        ([("/livez", ["GET"]), ("/health", ["GET"])], ["GET /livez", "GET /health"]),
    ],
)
def test_memras_own_routes_cannot_be_taken(app, routes, words):
    with pytest.raises(UsageError) as caught:
        mount_blueprints(app, [("thief (thief 1.0)", blueprint("thief", *routes))])
    for each in words:
        assert f"plugin thief (thief 1.0): its route {each}" in caught.value.message


def test_a_clash_between_plugins_and_a_blueprint_that_is_none_are_told_together(app):
    brought = [
        ("one", blueprint("one", ("/walls", ["GET", "POST"]))),
        ("two", blueprint("two", ("/walls", ["POST", "PUT"]))),
        ("three", blueprint("one", ("/other", ["GET"]))),
        ("four", "a blueprint"),
    ]
    with pytest.raises(UsageError) as caught:
        mount_blueprints(app, brought)
    complaints = caught.value.message.split("; ")
    assert complaints[0] == "plugin two: its route POST /walls is already plugin one's"
    assert complaints[1].startswith("plugin three: its blueprint cannot be used: The name 'one' is already registered")
    assert complaints[2] == "plugin four: its blueprint cannot be used: it is str, and must be a quart.Blueprint"
    assert len(complaints) == 3


def test_another_method_of_a_taken_path_is_free(app):
    mount_blueprints(app, [("one", blueprint("one", ("/livez", ["DELETE"])))])


def test_routes_are_listed_to_be_read():
    assert list_routes([blueprint("one", ("/a/<b>", ["GET", "POST"])), blueprint("two", ("/c", ["DELETE"]))]) == (
        "GET /a/<b>",
        "POST /a/<b>",
        "DELETE /c",
    )
