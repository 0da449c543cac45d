"""Links in requests and responses, as JSON and as a GeoJSON FeatureCollection (RFC 7946)."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from fastapi import Path
from fastapi.exceptions import RequestValidationError
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    FailFast,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import from_json

from app.core.errors import NO_NUL_RULE, Invalid, TooLarge, UnsupportedMediaType, worded
from app.core.slots import MINUTES_A_DAY, SlotGrid, zone_named
from app.http.requests import WHOLE
from app.links.geometry import Geometry

GEOJSON = "application/geo+json"

LINK_ID_PATTERN = worded(
    r"^[A-Za-z0-9._:-]{1,64}$", "must be 1 to 64 letters, digits, dots, underscores, colons or dashes"
)
NO_NUL = worded(r"^[^\x00]+$", NO_NUL_RULE)  # PostgreSQL cannot store it
LARGEST_CAPACITY = 1_000_000
MOST_UPSTREAM = 100
MOST_KEYS = 100  # of an object in a body
MOST_BRACKETS = 500_000  # lists and objects in a body; each point of a geometry is a list
SLOT_LENGTHS = [minutes for minutes in range(1, MINUTES_A_DAY + 1) if MINUTES_A_DAY % minutes == 0]


def known_zone(name: str) -> str:
    """Return the name of a time zone; raise ``ValueError`` for any other."""
    zone_named(name)
    return name


def slot_length(minutes: int) -> int:
    """Return a length of slots that divides a day; raise ``ValueError`` for any other."""
    return SlotGrid(minutes).slot_minutes


def _once_each(link_ids: list[str]) -> list[str]:
    twice = sorted({link_id for link_id in link_ids if link_ids.count(link_id) > 1})
    if twice:
        raise ValueError(f"it must name each link once; {', '.join(twice)} comes more than once")
    return link_ids


LinkId = Annotated[
    str, Field(pattern=LINK_ID_PATTERN, description="The owner's own name for the link", examples=["Ba"])
]
LinkPath = Annotated[
    str, Path(pattern=LINK_ID_PATTERN, description="The owner's own name for the link", examples=["Ba"])
]
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=NO_NUL)]
Zone = Annotated[
    str,
    Field(json_schema_extra={"format": "iana-time-zone"}, examples=["Europe/Berlin"]),
    AfterValidator(known_zone),
]
SlotMinutes = Annotated[int, Field(json_schema_extra={"enum": list(SLOT_LENGTHS)}), AfterValidator(slot_length), WHOLE]
Capacity = Annotated[float, Field(strict=True, gt=0, le=LARGEST_CAPACITY, allow_inf_nan=False)]
Upstream = Annotated[
    list[LinkId],
    Field(max_length=MOST_UPSTREAM, json_schema_extra={"uniqueItems": True}),
    AfterValidator(_once_each),
]

EXAMPLE: dict[str, Any] = {
    "name": "High Street, northbound",
    "zone": "Europe/Berlin",
    "geometry": {"type": "LineString", "coordinates": [[7.0913, 54.4677], [7.0916, 54.4701]]},
    "upstream": ["Ba"],
    "capacity": 1800.0,
    "slot_minutes": 15,
}
EXAMPLE_WITH_ID = {"link_id": "high-street"} | EXAMPLE
TIMES = {"created_at": "2026-11-18T21:16:07.794665Z", "updated_at": "2026-11-18T21:16:07.794665Z"}
FEATURE_EXAMPLE: dict[str, Any] = {
    "type": "Feature",
    "geometry": EXAMPLE["geometry"],
    "properties": {name: value for name, value in EXAMPLE_WITH_ID.items() if name != "geometry"},
}
FEATURES_EXAMPLE: dict[str, Any] = {"type": "FeatureCollection", "features": [FEATURE_EXAMPLE]}


class LinkProperties(BaseModel):
    """The properties of a link beside its id and its geometry."""

    model_config = ConfigDict(extra="forbid")

    name: Name | None = Field(None, description="Any text; without one, the link_id")
    zone: Zone = Field(  # empty where it was left out
        default_factory=str,
        description="IANA time zone whose days and weekdays the traffic follows. A new link needs one unless "
        "`FLOWCAST_DEFAULT_ZONE` is set; left out, an existing link keeps its own",
    )
    upstream: Upstream = Field(
        default_factory=list,
        description="Links whose traffic runs into this one; they must exist or be in the same request",
    )
    capacity: Capacity | None = Field(None, description="Vehicles per hour that can pass the link")
    slot_minutes: SlotMinutes = Field(
        15,
        description="Length of a slot in minutes; it divides 1440 and cannot change once the link has counts or models",
    )


class LinkBody(LinkProperties):
    """A link, but for its id."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    geometry: Geometry | None = Field(None, description="GeoJSON geometry: [longitude, latitude], WGS 84")


class LinkIn(LinkBody):
    """A link to store."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE_WITH_ID]})

    link_id: LinkId


class LinkBatch(BaseModel):
    """Many links at once."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"links": [EXAMPLE_WITH_ID]}]})

    place: ClassVar[str] = "links.{}"  # of a link in the body

    links: Annotated[list[LinkIn], FailFast()] = Field(description="Each link once; all are stored, or none")


class FeatureProperties(LinkProperties):
    """The properties of a link's feature beside its geometry."""

    link_id: LinkId


class LinkFeature(BaseModel):
    """One link; ``properties.link_id`` names it, and members that RFC 7946 does not know are not kept."""

    type: Literal["Feature"]
    geometry: Geometry | None = Field(None, description="GeoJSON geometry: [longitude, latitude], WGS 84")
    properties: FeatureProperties

    def link(self) -> LinkIn:
        """Return the link that the feature describes."""
        # Everything in it has been checked; what was left out must stay left out.
        return LinkIn.model_construct(
            self.properties.model_fields_set | {"geometry"}, geometry=self.geometry, **dict(self.properties)
        )


class LinkCollection(BaseModel):
    """Many links at once, as a GeoJSON FeatureCollection."""

    model_config = ConfigDict(json_schema_extra={"examples": [FEATURES_EXAMPLE]})
    place: ClassVar[str] = "features.{}.properties"  # of a link in the body

    type: Literal["FeatureCollection"]
    features: Annotated[list[LinkFeature], FailFast()] = Field(description="Each link once; all are stored, or none")

    @property
    def links(self) -> list[LinkIn]:
        """Return the links that the features describe."""
        return [feature.link() for feature in self.features]


def _format(body: Any) -> str:
    return "geojson" if isinstance(body, dict) and "type" in body else "json"


def _refuse_wide(body: Any) -> Any:
    """Return JSON; raise ``ValueError`` if an object in it has far more keys than any known one."""
    waiting = [body]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if len(part) > MOST_KEYS:
                raise ValueError(f"it must not contain an object of {len(part)} keys; at most {MOST_KEYS} are accepted")
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return body


LINKS_BODY: TypeAdapter[LinkBatch | LinkCollection] = TypeAdapter(
    Annotated[
        Annotated[LinkBatch, Tag("json")] | Annotated[LinkCollection, Tag("geojson")],
        Discriminator(_format),
        BeforeValidator(_refuse_wide),
    ]
)


def parse_links(body: bytes, media_type: str) -> LinkBatch | LinkCollection:
    """Parse links from JSON or GeoJSON; refuse bodies of many brackets, which would take fifty times their size."""
    kind = media_type.partition(";")[0].strip().lower()
    if not (kind == "application/json" or kind.endswith("+json")):
        raise UnsupportedMediaType.named(media_type, "application/json", GEOJSON)
    if (brackets := body.count(b"[") + body.count(b"{")) > MOST_BRACKETS:
        raise TooLarge(
            f"the body has {brackets} lists and objects; at most {MOST_BRACKETS} are accepted, send fewer links"
        )
    try:
        document = from_json(body.removeprefix(BOM_UTF8), allow_inf_nan=False)
        return LINKS_BODY.validate_python(document)
    except ValidationError as problem:
        errors = problem.errors(include_url=False)
        raise RequestValidationError(
            [{**error, "loc": ("body", *error["loc"])} for error in errors], body=document
        ) from None
    except ValueError as problem:
        raise Invalid.field("body", "", f"must be JSON; {problem}") from None


class LinkOut(BaseModel):
    """A link as it is stored."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE_WITH_ID | TIMES]})

    link_id: LinkId
    name: str = Field(description="Any text", examples=[EXAMPLE["name"]])
    zone: str = Field(description="IANA time zone", examples=["Europe/Berlin"])
    geometry: Geometry | None = Field(description="GeoJSON geometry: [longitude, latitude], WGS 84")
    upstream: list[str] = Field(description="Links whose traffic runs into this one, by id")
    capacity: float | None = Field(description="Vehicles per hour that can pass the link", examples=[1800.0])
    slot_minutes: int = Field(description="Length of a slot in minutes", examples=[15])
    created_at: datetime = Field(description="When the link was first stored")
    updated_at: datetime = Field(description="When it last changed")


class LinkPage(BaseModel):
    """Links by id, a page of them."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"links": [EXAMPLE_WITH_ID | TIMES], "next_cursor": "high-street"}]}
    )

    links: list[LinkOut]
    next_cursor: str | None = Field(description="Send it as `cursor` for the next page; null at the end")


class LinksReport(BaseModel):
    """The numbers of links that a request created, changed and left unchanged."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"created": 2, "updated": 0, "unchanged": 0}]})

    created: int = Field(description="Links that are new", examples=[12])
    updated: int = Field(description="Links that existed and were changed", examples=[0])
    unchanged: int = Field(description="Links that existed with the same fields", examples=[0])


COLLECTION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["type", "features", "next_cursor"],
    "properties": {
        "type": {"const": "FeatureCollection"},
        "features": {"type": "array", "items": {"$ref": "#/components/schemas/LinkFeature"}},
        "next_cursor": {"type": ["string", "null"]},
    },
    "examples": [FEATURES_EXAMPLE | {"next_cursor": "high-street"}],
}


def feature_collection(links: Sequence[LinkOut], next_cursor: str | None) -> str:
    """Return links as ``POST /v1/links`` accepts them."""
    features = [
        {
            "type": "Feature",
            "id": link.link_id,
            "geometry": None if link.geometry is None else link.geometry.model_dump(mode="json"),
            "properties": link.model_dump(
                include={"link_id", "name", "zone", "capacity", "slot_minutes", "upstream"}, mode="json"
            ),
        }
        for link in links
    ]
    return json.dumps({"type": "FeatureCollection", "features": features, "next_cursor": next_cursor})
