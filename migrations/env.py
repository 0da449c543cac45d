"""Run Alembic over the connection it is given, or over one to the database that the settings name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from alembic import context
from sqlalchemy import Connection

from app.core.database import is_sqlite, open_database
from app.maintenance.tables import ALL_TABLES
from app.settings import settings_from_environment

UPGRADE_LOCK = 7_046_029_254_386_353_131  # any number, the same in every process


def migrate(connection: Connection) -> None:
    """Run the steps inside one transaction, alone."""
    if connection.dialect.name == "postgresql":
        # Several services may start at once; the first upgrades, the others wait and find nothing to do.
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({UPGRADE_LOCK})")
    context.configure(
        connection=connection,
        target_metadata=ALL_TABLES,
        render_as_batch=connection.dialect.name == "sqlite",
        compare_type=True,
        include_name=_all_but_parts(connection),
    )
    with context.begin_transaction():
        context.run_migrations()


def _all_but_parts(connection: Connection) -> Callable[[str | None, str, Any], bool]:
    """Leave out the months of a table, which the code knows as the one table they are parts of."""
    parts: set[str] = set()
    if connection.dialect.name == "postgresql":
        parts.update(connection.exec_driver_sql("SELECT relname FROM pg_class WHERE relispartition").scalars())
    return lambda name, kind, _parents: kind != "table" or name not in parts


def run() -> None:
    """Migrate over the connection in the configuration, or open one."""
    given = context.config.attributes.get("connection")
    if given is not None:
        migrate(given)
        return
    engine = open_database(settings_from_environment().database_url)
    with engine.execution_options(writes=is_sqlite(engine)).begin() as connection:
        migrate(connection)
    engine.dispose()


if context.is_offline_mode():
    context.configure(url=settings_from_environment().database_url, target_metadata=ALL_TABLES, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
else:
    run()
