"""The numbers a database gives to new rows: which it gave last, and how to let it go on from there."""

from __future__ import annotations

from sqlalchemy import Connection, Table, column, func, select, table, text, update

from app.maintenance.stored_rows import number_column

_SEQUENCES = table("sqlite_sequence", column("name"), column("seq"))


def last_number(connection: Connection, of: Table) -> int:
    """Give the highest number that a table's rows ever had, as far as the database remembers; 0 for none."""
    name = number_column(of)
    if name is None:
        return 0
    highest = connection.execute(select(func.max(of.columns[name]))).scalar() or 0
    if connection.dialect.name == "postgresql":
        sequence = _sequence(connection, of, name)
        found = connection.exec_driver_sql(f"SELECT last_value, is_called FROM {sequence}")  # nosec B608 # ours, quoted
        last, used = found.one()
        return max(highest, int(last) if used else 0)
    if _never_again(of):
        given = connection.execute(select(_SEQUENCES.c.seq).where(_SEQUENCES.c.name == of.name)).scalar()
        return max(highest, given or 0)
    return highest


def go_on_after(connection: Connection, of: Table, number: int) -> None:
    """Let the next row of a table have the number after this one."""
    name = number_column(of)
    if name is None or number == 0:
        return
    if connection.dialect.name == "postgresql":
        connection.execute(
            text("SELECT setval(CAST(:sequence AS regclass), :number)"),
            {"sequence": _sequence(connection, of, name), "number": number},
        )
    elif _never_again(of):
        changed = connection.execute(update(_SEQUENCES).where(_SEQUENCES.c.name == of.name).values(seq=number))
        if not changed.rowcount:  # no row was ever put in
            connection.execute(_SEQUENCES.insert().values(name=of.name, seq=number))


def _sequence(connection: Connection, of: Table, name: str) -> str:
    question = text("SELECT pg_get_serial_sequence(:table, :column)")
    return str(connection.execute(question, {"table": of.name, "column": name}).scalar_one())


def _never_again(of: Table) -> bool:
    """Tell whether SQLite remembers the numbers of rows that are gone."""
    return bool(of.dialect_options["sqlite"]["autoincrement"])
