"""Every hook, in the order of a server's life: when it is called, on which thread, and what an exception does.

A hook is a plain function or, where it says so, a coroutine function. Plain functions that are called for a request run
in worker threads, coroutine functions on trio, or, of a plugin that says `memra_async = "asyncio"`, on one asyncio loop
for all of them. Every call on behalf of a request has the time of `[plugins] timeout_s`; one that takes longer, raises
or returns nonsense is named in the log and costs that one request a clear error. Plugins are asked in the order of
their names, those with `tryfirst` before and those with `trylast` after the others; hook wrappers are refused. No hook
lies on the path of a token. An implementation may leave out arguments that it does not need.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memra.messages.admission import RequestEnded
from memra.messages.identity import Credentials, Identity
from memra.plugins.commands import Command
from memra.plugins.feeds import Feed
from memra.plugins.handles import RuntimeHandles
from memra.plugins.markers import hookspec
from memra.plugins.metering import Maybe, Metering
from memra.plugins.questions import AdmissionQuestion, Verdict
from memra.types import ModelName

# -- start: plain functions, on the main thread; an exception stops the start with exit code 2 and names the plugin


@hookspec
def memra_config_schema() -> type:
    """Declare the plugin's own table, `[plugins.NAME]`, as a frozen dataclass or msgspec struct.

    Unknown keys and wrong types are refused, at every depth, with exit code 2. `memra_configure` gets an instance. A
    field may be a `Path`; it is read from text, and `~` is the user's home.
    """
    raise NotImplementedError


@hookspec
def memra_configure(config: Any) -> None:
    """Take the plugin's own table: an instance of its schema, or a mapping where it declares none.

    Called once per plugin before any model is loaded, with the schema's defaults where there is no table, and before
    one of the plugin's commands runs. An exception stops the start with exit code 2; so a plugin refuses here what it
    does not understand.
    """


@hookspec
def memra_commands() -> Sequence[Command]:
    """Add sub-commands to `memra`.

    Asked for the help and for every command line that is not memra's own, before the plugin is configured, so it must
    not import anything heavy. A word that is taken is a clash.
    """
    raise NotImplementedError


@hookspec
def memra_telemetry_exporters() -> Sequence[Any]:
    """Give OpenTelemetry `SpanExporter`s, which get every finished span in batches; needs `memra[otel]`."""
    raise NotImplementedError


@hookspec
def memra_tool_dialects() -> Sequence[Any]:
    """Give further `memra.chat.tool_dialects.contract.ToolDialect`s; they are asked before memra's own.

    Two of one name are a clash. One that fails on a template is named in the log and passed over.
    """
    raise NotImplementedError


@hookspec
def memra_feeds() -> Sequence[Feed]:
    """Add schemas to `GET /models?schema=NAME` and `memra feeds NAME`. Two of one name are a clash.

    A feed that is a `FileFeed` too has its files written by `memra feeds NAME --out DIR`.
    """
    raise NotImplementedError


# -- models: plain functions, in the thread that opens a model


@hookspec
def memra_open_source(source: str, cache: Path) -> Path | None:
    """Fetch a model's source and return where it lies: a GGUF file or a checkpoint directory.

    The first answer that is not None counts; None: not this plugin's kind of source. Asked before memra's own kinds.
    An exception is told as the reason why the model cannot be opened.

    Args:
        source: as written behind `NAME=`.
        cache: a directory to keep files in; it need not exist yet.
    """


@hookspec
def memra_chat_template(model: ModelName, architecture: str, template: str | None) -> str | None:
    """Put another Jinja chat template in the place of a model's own; the first answer that is not None counts.

    It is used with tools and without. An exception is told as the reason why the model cannot be opened.
    """


# -- doors: plain functions, on the loop's thread, before the doors open; an exception stops the start with exit code 1


@hookspec
def memra_metering(models: Sequence[ModelName]) -> Metering | None:
    """Bring the accounting; called once, when the models are known. None: not now.

    Two plugins that both answer are a clash: exit code 2.
    """


@hookspec
def memra_blueprints(handles: RuntimeHandles) -> Sequence[Any]:
    """Add public routes: `quart.Blueprint`s, whose functions run on trio. A route that exists already is a clash.

    Nobody is asked for a key before them. The handles are trio's, also in a plugin that lives on asyncio.
    """
    raise NotImplementedError


@hookspec
def memra_admin_blueprints(handles: RuntimeHandles) -> Sequence[Any]:
    """Add routes to the admin listener, behind its token and its audit; not asked where there is none."""
    raise NotImplementedError


@hookspec
def memra_ready(handles: RuntimeHandles) -> Maybe[None]:
    """Take the handles: models are loaded, the doors open next. Not awaited; an exception is logged.

    May be a coroutine function that runs as long as the server; it is cancelled when the server ends. A plain function
    runs in a thread, which is left behind at the end.
    """
    raise NotImplementedError


# -- requests: plain or coroutine functions


@hookspec
def memra_authenticate(credentials: Credentials) -> Maybe[Identity | None]:
    """Say who sends a request; None: not this plugin's kind of credentials.

    The first answer that is not None counts; where all say None the server's own keys decide. Raise
    `memra.errors.AuthenticationError` (401) or `ForbiddenError` (403) to refuse; anything else is a fault: 503.
    """
    raise NotImplementedError


@hookspec
def memra_admit(question: AdmissionQuestion) -> Maybe[Verdict | None]:
    """Deny a request or lower its limit, before it takes a slot; None: no objection.

    Plugins are asked in order until one denies; of several limits the smallest counts. A fault denies: 503.
    """
    raise NotImplementedError


@hookspec
def memra_request_started(question: AdmissionQuestion) -> Maybe[None]:
    """Watch a request that was let in. As `memra_request_ended`, in one queue with it."""
    raise NotImplementedError


@hookspec
def memra_request_ended(record: RequestEnded) -> Maybe[None]:
    """Take the one usage record of an admitted request, whatever its end was.

    Called in order, one record after the other, beside the requests and not in their way: a plugin that falls 1,024
    records behind loses the newest, which is counted and logged. An exception is logged and disturbs nobody. What waits
    when the server ends is delivered within 2 s.
    """
    raise NotImplementedError


# -- end


@hookspec
def memra_shutdown() -> Maybe[None]:
    """Let go of what was taken; called once after the last request, with 5 s for all plugins at the same time.

    Also called when a start fails once `memra_metering` may have been asked.
    """
    raise NotImplementedError
