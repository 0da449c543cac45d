"""``flowcast sample-city``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from app.commands.console import notes, refuse
from app.demo.city import links_geojson, sample_city, write_csv


def sample_city_command(
    output: Annotated[Path, typer.Option(help="CSV file to write; .gz compresses.")],
    links: Annotated[int, typer.Option(help="Number of links.")] = 12,
    days: Annotated[int, typer.Option(help="Number of days.")] = 28,
    seed: Annotated[int, typer.Option(help="Seed; each one gives another city.")] = 0,
    geojson: Annotated[Path | None, typer.Option(help="GeoJSON file to write the links to.")] = None,
) -> None:
    """Write the synthetic counts of the sample city to a file.

    Example:

        flowcast sample-city --links 12 --output city.csv.gz
    """
    try:
        city = sample_city(links=links, days=days, seed=seed)
        write_csv(city, output)
        if geojson is not None:
            geojson.write_text(json.dumps(links_geojson(city)))
    except (ValueError, OSError) as problem:
        refuse("sample-city", problem)
    notes.print(f"{len(city.links)} links, {days} days, synthetic: {output}")
    for event in city.events:
        notes.print(f"  {event.kind}: {escape(event.description)}", soft_wrap=True)
