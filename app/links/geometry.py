"""GeoJSON geometries of RFC 7946: [longitude, latitude], WGS 84, with or without an altitude.

Their length is bounded by the limit on the size of a body.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, FailFast, Field, Tag

Longitude = Annotated[float, Field(strict=True, ge=-180, le=180, allow_inf_nan=False)]
Latitude = Annotated[float, Field(strict=True, ge=-90, le=90, allow_inf_nan=False)]
Altitude = Annotated[float, Field(strict=True, ge=-12_000, le=100_000, allow_inf_nan=False)]  # metres


def _size(position: Any) -> str:
    return str(len(position)) if isinstance(position, list | tuple) else ""


# By its size: of a plain union each member would report the same mistake.
Position = Annotated[
    Annotated[tuple[Longitude, Latitude], Tag("2")] | Annotated[tuple[Longitude, Latitude, Altitude], Tag("3")],
    Discriminator(
        _size,
        custom_error_type="position",
        custom_error_message="it must be [longitude, latitude] or [longitude, latitude, altitude]",
    ),
]


def _closed(ring: list[Position]) -> list[Position]:
    if ring[0] != ring[-1]:
        raise ValueError("it must end where it begins, as it is a ring of a polygon")
    return ring


# FailFast: the first of a million mistakes is enough.
Line = Annotated[list[Position], Field(min_length=2), FailFast()]
Ring = Annotated[list[Position], Field(min_length=4), FailFast(), AfterValidator(_closed)]
Rings = Annotated[list[Ring], Field(min_length=1), FailFast()]


class _Geometry(BaseModel):
    """A geometry; members that RFC 7946 does not define, such as ``bbox``, are not kept."""

    model_config = ConfigDict(extra="ignore")


class Point(_Geometry):
    """One position."""

    type: Literal["Point"]
    coordinates: Position


class MultiPoint(_Geometry):
    """Several positions."""

    type: Literal["MultiPoint"]
    coordinates: Annotated[list[Position], Field(min_length=1), FailFast()]


class LineString(_Geometry):
    """A line, in the direction of travel."""

    type: Literal["LineString"]
    coordinates: Line


class MultiLineString(_Geometry):
    """Several lines."""

    type: Literal["MultiLineString"]
    coordinates: Annotated[list[Line], Field(min_length=1), FailFast()]


class Polygon(_Geometry):
    """An area: its outline, then its holes, each ending where it begins."""

    type: Literal["Polygon"]
    coordinates: Rings


class MultiPolygon(_Geometry):
    """Several areas."""

    type: Literal["MultiPolygon"]
    coordinates: Annotated[list[Rings], Field(min_length=1), FailFast()]


Geometry = Annotated[
    Point | MultiPoint | LineString | MultiLineString | Polygon | MultiPolygon, Field(discriminator="type")
]

Box = tuple[float, float, float, float]  # west, south, east, north


def bounding_box(geometry: dict[str, Any]) -> Box:
    """Return the smallest box around a stored geometry: west, south, east, north."""
    positions = _positions(geometry["coordinates"])
    longitudes, latitudes = [position[0] for position in positions], [position[1] for position in positions]
    return min(longitudes), min(latitudes), max(longitudes), max(latitudes)


def _positions(coordinates: list[Any]) -> list[list[float]]:
    if not isinstance(coordinates[0], list):
        return [coordinates]
    return [position for part in coordinates for position in _positions(part)]
