"""The routes of memra's own administration: each a question to the handles, and its report as JSON.

Trade: bodies in, reports out, and which refusal has which status. Refuses to know tokens and audits, which are the
listener's, and anything of the server but its handles.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

import msgspec
from quart import Blueprint, request
from quart.wrappers import Response

from memra.errors import ConfigurationError, DeniedError, DrainingError, HandoffError, UnknownModelError
from memra.plugins.admin import bodies
from memra.plugins.admin.tasks import Task, TaskList
from memra.plugins.handles import HandlesClosedError, RunningRequest, RuntimeHandles

Body = TypeVar("Body", bound=msgspec.Struct)

_ACCEPTED = 202


def admin_blueprint(handles: RuntimeHandles, tasks: TaskList) -> Blueprint:
    """Return the routes."""
    blueprint = Blueprint("admin", __name__, url_prefix="/admin")
    memory, models, requests = _Memory(handles), _Models(handles, tasks), _Requests(handles)
    keys, jobs = _Keys(handles), _Tasks(tasks)
    for method, path, view in (
        ("POST", "/trim", memory.trim),
        ("POST", "/tenants/<tenant>/purge", memory.purge),
        ("POST", "/kv-host/export", memory.export_prefixes),
        ("POST", "/kv-host/import", memory.import_prefixes),
        ("GET", "/models", models.list_all),
        ("POST", "/models/load", models.load),
        ("POST", "/models/unload", models.unload),
        ("POST", "/reload-metadata", models.reload_metadata),
        ("GET", "/tasks", jobs.list_all),
        ("GET", "/tasks/<task_id>", jobs.show),
        ("POST", "/tasks/<task_id>/cancel", jobs.cancel),
        ("GET", "/requests", requests.list_all),
        ("POST", "/requests/<request_id>/cancel", requests.cancel),
        ("POST", "/keys", keys.create),
        ("POST", "/keys/revoke", keys.revoke),
    ):
        endpoint = f"{method} {path}".replace(".", " ")
        blueprint.add_url_rule(path, endpoint=endpoint, view_func=view, methods=[method])
    return blueprint


class _Memory:
    """What is remembered of prompts."""

    def __init__(self, handles: RuntimeHandles) -> None:
        self._handles = handles

    async def trim(self) -> Response:
        """Forget everything that no running request uses."""
        with _refusals():
            return _answer(await self._handles.trim())

    async def purge(self, tenant: str) -> Response:
        """Forget what is remembered of a tenant."""
        with _refusals():
            return _answer(await self._handles.purge_tenant(tenant))

    async def export_prefixes(self) -> Response:
        """Write the hand-off file."""
        order = await _body(bodies.Export)
        with _refusals():
            return _answer(await self._handles.export_prefixes(force=order.force))

    async def import_prefixes(self) -> Response:
        """Begin to read the hand-off file."""
        with _refusals():
            return _answer(await self._handles.import_prefixes())


class _Models:
    """What lies in memory."""

    def __init__(self, handles: RuntimeHandles, tasks: TaskList) -> None:
        self._handles = handles
        self._tasks = tasks

    async def list_all(self) -> Response:
        """Say what lies in memory of every model."""
        with _refusals():
            return _answer({"models": await self._handles.list_models()})

    async def load(self) -> Response:
        """Begin to load a model, or to put another in its place."""
        order = await _body(bodies.Load)
        work = partial(self._handles.load_model, order.name, order.source)
        return _answer({"task": self._tasks.begin("load", order.name, work).report()}, status=_ACCEPTED)

    async def unload(self) -> Response:
        """Let a model go once its last request has ended."""
        order = await _body(bodies.Unload)
        with _refusals():
            return _answer({"name": order.name, "unloaded": await self._handles.unload_model(order.name)})

    async def reload_metadata(self) -> Response:
        """Read the file of model metadata again."""
        with _refusals():
            return _answer(await self._handles.reload_metadata())


class _Tasks:
    """What takes long."""

    def __init__(self, tasks: TaskList) -> None:
        self._tasks = tasks

    async def list_all(self) -> Response:
        """Say how far every task is."""
        return _answer({"tasks": [task.report() for task in self._tasks.all()]})

    async def show(self, task_id: str) -> Response:
        """Say how far one is."""
        return _answer({"task": self._find(task_id).report()})

    async def cancel(self, task_id: str) -> Response:
        """Take one back."""
        task = self._find(task_id)
        if not self._tasks.cancel(task):
            raise DeniedError(f"Task {task_id} is {task.state} already.", status=409, code="task_ended")
        return _answer({"task": task.report()})

    def _find(self, task_id: str) -> Task:
        task = self._tasks.find(task_id)
        if task is None:
            raise DeniedError(f"There is no task {task_id!r}; see GET /admin/tasks.", status=404, code="task_not_found")
        return task


class _Requests:
    """What runs now."""

    def __init__(self, handles: RuntimeHandles) -> None:
        self._handles = handles

    async def list_all(self) -> Response:
        """Say what runs and waits, without a word of a prompt."""
        with _refusals():
            return _answer({"requests": [_line(each) for each in await self._handles.list_requests()]})

    async def cancel(self, request_id: str) -> Response:
        """End a request of whatever tenant."""
        with _refusals():
            if not await self._handles.cancel_request(request_id):
                raise DeniedError(
                    f"No request {request_id!r} is under way; see GET /admin/requests.",
                    status=404,
                    code="request_not_found",
                )
        return _answer({"id": request_id, "cancelled": True})


class _Keys:
    """Keys of tenants."""

    def __init__(self, handles: RuntimeHandles) -> None:
        self._handles = handles

    async def create(self) -> Response:
        """Make a key; the only time that it is shown."""
        order = await _body(bodies.CreateKey)
        order.check()
        with _refusals():
            made = await self._handles.create_key(order.tenant, key_class=order.key_class, rate_limit=order.rate_limit)
        return _answer(
            {
                "key": made.key,
                "prefix": made.prefix,
                "tenant": made.tenant,
                "lane": made.key_class.value,
                "rate_limit": made.rate_limit,
            }
        )

    async def revoke(self) -> Response:
        """Disable a key."""
        order = await _body(bodies.RevokeKey)
        order.check()
        with _refusals():
            num_found = await self._handles.revoke_key(order.prefix)
        if num_found == 0:
            raise DeniedError(f"No key begins with {order.prefix!r}.", status=404, code="key_not_found")
        if num_found > 1:
            raise DeniedError(
                f"{num_found} keys have the beginning {order.prefix!r}; nothing was done.",
                status=409,
                code="ambiguous_prefix",
            )
        return _answer({"prefix": order.prefix, "revoked": True})


@contextmanager
def _refusals() -> Iterator[None]:
    """Give what the handles refuse a status and a code."""
    try:
        yield
    except HandlesClosedError:
        raise DrainingError("The server is shutting down.", retry_after_s=1.0) from None
    except HandoffError as error:
        raise DeniedError(error.message, status=409, code="handoff_refused") from error
    except UnknownModelError as error:
        raise DeniedError(error.message, param="name", status=404, code="model_not_found") from error
    except ConfigurationError as error:
        raise DeniedError(error.message, status=409, code="not_configured") from error


async def _body(schema: type[Body]) -> Body:
    """Read a JSON body; none at all is an empty object.

    Raises:
        DeniedError: it is no JSON, or not of the schema.
    """
    data = await request.get_data()
    try:
        return msgspec.json.decode(data or b"{}", type=schema)
    except msgspec.DecodeError as error:
        raise DeniedError(f"The body cannot be used: {error}.", status=400, code="invalid_body") from error


def _answer(content: Any, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status=status, content_type="application/json")


def _line(running: RunningRequest) -> dict[str, Any]:
    fields = asdict(running)
    return {"id": fields.pop("request_id"), **fields, "lane": running.lane.value}
