"""Counts and forecasts in parts by month on PostgreSQL, and a note of upkeep done by schedule."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import groupby

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

MONTHLY = ("counts", "forecasts")
MOST_MONTHS = 100  # that are dropped in one transaction
PRIMARY_KEYS = {"counts": "link_key, slot_start", "forecasts": "link_key, slot_start, horizon, model_version"}


def upgrade() -> None:
    """Move the rows into their months, and keep every one."""
    op.create_table(
        "upkeep",
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("moment", sa.DateTime(timezone=True), nullable=False),
        sa.Column("worker", sa.String(length=64), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("figures", sa.JSON(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("kind", name=op.f("upkeep_pkey")),
    )
    if op.get_context().dialect.name == "postgresql":
        for table in MONTHLY:
            _move(table, " PARTITION BY RANGE (slot_start)")


def downgrade() -> None:
    """Move them back into one table."""
    if op.get_context().dialect.name == "postgresql":
        for table in MONTHLY:  # both before this transaction locks anything
            _merge_months(table)
        for table in MONTHLY:
            _move(table, "")
    op.drop_table("upkeep")


def _merge_months(table: str) -> None:
    """Merge the months of each year into one part where there are many, a year in a transaction of its own.

    Dropping a part takes locks for its constraints and indexes, too, and PostgreSQL has room for some 6,400 locks by
    default: hundreds of months do not fit into one transaction. The table is whole after every year.
    """
    engine = op.get_bind().engine
    question = "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = %s::regclass"
    with engine.connect() as connection:
        names = sorted(connection.exec_driver_sql(question, (table,)).scalars())
    if len(names) <= MOST_MONTHS:
        return
    for year, months in groupby(names, lambda name: int(name.rsplit("_", 2)[1])):
        parts = list(months)
        if len(parts) > 1:
            with engine.begin() as connection:
                _merge(connection, table, year, parts)


def _merge(connection: sa.Connection, table: str, year: int, parts: list[str]) -> None:
    merged, begin, end = f"{table}_{year}_01", datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    run = connection.exec_driver_sql
    run(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
    run(f"CREATE TABLE {table}_merged (LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)")
    for part in parts:
        run(f"INSERT INTO {table}_merged SELECT * FROM {part}")  # nosec B608 # tables of ours
        run(f"DROP TABLE {part}")
    run(f"ALTER TABLE {table}_merged RENAME TO {merged}")
    bounds = f"FROM ({int(begin.timestamp())}) TO ({int(end.timestamp())})"
    run(f"ALTER TABLE {table} ATTACH PARTITION {merged} FOR VALUES {bounds}")


def _move(table: str, parts: str) -> None:
    """Make a table anew, with or without parts, from its own rows; the migration's transaction undoes it all."""
    old = f"{table}_before"
    op.execute(f"ALTER TABLE {table} RENAME TO {old}")
    op.execute(f"CREATE TABLE {table} (LIKE {old} INCLUDING DEFAULTS INCLUDING CONSTRAINTS){parts}")
    if parts:
        for begin, end in _months(old):
            bounds = f"FROM ({int(begin.timestamp())}) TO ({int(end.timestamp())})"
            op.execute(f"CREATE TABLE {table}_{begin:%Y_%m} PARTITION OF {table} FOR VALUES {bounds}")
    # Without keys at first: they are made and checked at once in a tenth of the time it takes row by row.
    connection = op.get_bind()
    moved = connection.exec_driver_sql(f"INSERT INTO {table} SELECT * FROM {old}").rowcount  # nosec B608 # ours
    both = f"SELECT (SELECT count(*) FROM {old}), (SELECT count(*) FROM {table})"  # nosec B608 # tables of ours
    rows = connection.exec_driver_sql(both).one()
    if (moved, moved) != tuple(rows):
        raise RuntimeError(f"{table}: {rows[0]} rows were there, {moved} were moved, {rows[1]} arrived")
    op.execute(f"DROP TABLE {old}")
    op.execute(f"ALTER TABLE {table} ADD CONSTRAINT {table}_pkey PRIMARY KEY ({PRIMARY_KEYS[table]})")
    op.execute(
        f"ALTER TABLE {table} ADD CONSTRAINT {table}_link_key_fkey "
        "FOREIGN KEY (link_key) REFERENCES links (link_key) ON DELETE CASCADE"
    )
    op.execute(f"ANALYZE {table}")


def _months(table: str) -> list[tuple[datetime, datetime]]:
    """Return the beginning and the end of each month that has rows."""
    month = "date_trunc('month', to_timestamp(slot_start), 'UTC')"
    begins = f"SELECT DISTINCT {month} AS begin FROM {table}"  # nosec B608 # tables of ours
    question = f"SELECT begin, begin + interval '1 month' FROM ({begins}) AS months"  # nosec B608 # the same
    op.execute("SET LOCAL timezone = 'UTC'")  # in which a month is added
    return [(begin, end) for begin, end in op.get_bind().exec_driver_sql(f"{question} ORDER BY begin")]
