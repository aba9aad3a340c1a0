"""memra's own administration, as a plugin: routes on the admin listener over the public handles.

Trade: the hooks. `routes` answers, `tasks` carries out what takes long. Refuses to know anything of the server that the
handles do not say. Without an admin listener nothing of it is ever imported.
"""

from collections.abc import Sequence
from typing import Any

from memra.plugins.handles import RuntimeHandles
from memra.plugins.markers import hookimpl


@hookimpl
def memra_admin_blueprints(handles: RuntimeHandles) -> Sequence[Any]:
    """Bring the routes."""
    from memra.plugins.admin.routes import admin_blueprint  # noqa: PLC0415  (quart, where there is a listener)
    from memra.plugins.admin.tasks import TaskList  # noqa: PLC0415  (as above)

    return [admin_blueprint(handles, TaskList(handles))]
