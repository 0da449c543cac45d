"""Links as a GeoJSON FeatureCollection (RFC 7946), in and out."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, BeforeValidator, Discriminator, FailFast, Field, Tag, TypeAdapter, ValidationError
from pydantic_core import from_json

from app.core.errors import Invalid, TooLarge
from app.links.geometry import Geometry
from app.links.schemas import LinkBatch, LinkId, LinkIn, LinkOut, LinkProperties

MOST_KEYS = 100


def narrow(value: Any) -> Any:
    """Return JSON back as it is, unless an object in it has more keys than any that is known."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if len(part) > MOST_KEYS:
                raise ValueError(f"it must not hold an object of {len(part)} keys; {MOST_KEYS} are the most")
            waiting += [inner for inner in part.values() if isinstance(inner, dict | list)]
        elif isinstance(part, list):
            waiting += [inner for inner in part if isinstance(inner, dict | list)]
    return value


GEOJSON = "application/geo+json"
MOST_BRACKETS = 500_000  # lists and objects in a body; each point of a geometry is a list
OUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["type", "features", "next_cursor"],
    "properties": {
        "type": {"const": "FeatureCollection"},
        "features": {"type": "array", "items": {"$ref": "#/components/schemas/LinkFeature"}},
        "next_cursor": {"type": ["string", "null"]},
    },
}


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

    type: Literal["FeatureCollection"]
    features: Annotated[list[LinkFeature], FailFast()] = Field(description="Each link once; all are stored, or none")

    @property
    def links(self) -> list[LinkIn]:
        """The links that the features describe."""
        return [feature.link() for feature in self.features]


def _language(body: Any) -> str:
    return "geojson" if isinstance(body, dict) and "type" in body else "json"


LinksBody = Annotated[
    Annotated[LinkBatch, Tag("json")] | Annotated[LinkCollection, Tag("geojson")],
    Discriminator(_language),
    BeforeValidator(narrow),
]
LINKS_BODY: TypeAdapter[LinkBatch | LinkCollection] = TypeAdapter(LinksBody)


def parse_links(body: bytes, media_type: str) -> list[LinkIn]:
    """Parse links from JSON or GeoJSON; a body of nothing but brackets would take fifty times its size."""
    kind = media_type.partition(";")[0].strip().lower()
    if not (kind == "application/json" or kind.endswith("+json")):
        raise Invalid.field("content-type", media_type, f"must be application/json or {GEOJSON}")
    if (brackets := body.count(b"[") + body.count(b"{")) > MOST_BRACKETS:
        raise TooLarge(
            f"the body holds {brackets} lists and objects; at most {MOST_BRACKETS} are taken, send fewer links"
        )
    try:
        return LINKS_BODY.validate_python(from_json(body.removeprefix(BOM_UTF8), allow_inf_nan=False)).links
    except ValidationError as problem:
        errors = problem.errors(include_url=False)
        raise RequestValidationError([{**error, "loc": ("body", *error["loc"])} for error in errors]) from None
    except ValueError as problem:
        raise Invalid.field("body", "", f"must be JSON; {problem}") from None


def feature_collection(links: Sequence[LinkOut], next_cursor: str | None) -> str:
    """Write links so that ``POST /v1/links`` would take them as they are."""
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
