"""Register a trained model: store its artifact, then its row, or neither."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from sqlalchemy import event
from sqlalchemy.orm import Session

from app.core.errors import Invalid, broken_rule
from app.links.queries import LinkInfo
from app.registry.ensembles import AGGREGATION
from app.registry.queries import find_version, lock_versions, newest_version, with_fingerprint
from app.registry.schemas import ArtifactAbout
from app.registry.store import ModelStore, StoreUnreachable, place_of
from app.registry.tables import ModelVersion
from model.aggregation.state import Aggregation
from model.artifacts.artifact import DamagedArtifact, read_artifact
from model.artifacts.link_models import LinkModel, load_model
from model.artifacts.network_models import network_of
from model.link_model.trained_model import ALGORITHMS
from model.network_model.network import NetworkModel

LEAST_HORIZONS = 4  # slots ahead that are served; a test compares it with app.forecasts, which this package precedes
# What is kept of an artifact's description; what is added to it is of retrain runs.
LEARNT = ("plan", "held_out", "verdicts", "suspect", "gaps", "mu", "n_iter", "data_fingerprint", "zone")
KEPT = (*LEARNT, "chosen", "refreshed", "young", AGGREGATION)


class Registered(NamedTuple):
    """Which version a trained model is, and whether it is new in the registry."""

    version: int
    new: bool


def register_model(
    session: Session, store: ModelStore, link: LinkInfo, folder: Path, *, now: datetime | None = None
) -> Registered:
    """Register an artifact for its link as a candidate, unless it is there already.

    Raises
    ------
    Invalid
        The artifact is damaged, or not one of this link's.
    """
    model, described, fingerprint = _read_artifact(folder)
    about = _check_about(link, described)
    _check_model(link, model)
    lock_versions(session, link.link_key)
    known = with_fingerprint(session, link.link_key, fingerprint)
    if known is not None:
        _repair(store, known, folder)
        return Registered(known.version, new=False)
    version = newest_version(session, link.link_key) + 1
    place = place_of(link.link_id, version)
    store.add(folder, place, fingerprint)
    _remove_unless_committed(session, store, place)
    kept = {name: described[name] for name in KEPT if name in described}
    if isinstance(model, NetworkModel):
        kept["network"] = network_of(folder)
    session.add(
        ModelVersion(
            link_key=link.link_key,
            version=version,
            state="candidate",
            algorithm=model.algorithm,
            folder=place,
            fingerprint=fingerprint,
            rank=model.rank,
            size_bytes=store.size(place),
            trained_from=about.trained_from,
            trained_to=about.trained_to,
            about=kept,
            created_at=now or datetime.now(UTC),
        )
    )
    session.flush()
    return Registered(version, new=True)


def note_decision(session: Session, link_key: int, version: int, run_id: int, outcome: str, reason: str) -> None:
    """Store what a retrain run decided about a version; the figures it decided by are stored already."""
    row = find_version(session, link_key, version)
    if row is not None:
        row.about = row.about | {"decision": {"run_id": run_id, "outcome": outcome, "reason": reason}}


def mismatch(link: LinkInfo, zone: str, slot_minutes: int) -> Invalid | None:
    """Return why counts of another zone or slot length cannot train a link's model; None if both are the link's."""
    if slot_minutes != link.slot_minutes:
        rule = f"must be that of link {link.link_id!r}, {link.slot_minutes}"
        return Invalid.field("slot_minutes", slot_minutes, rule)
    if zone != link.zone_name:  # its weekdays and times of day would not be the link's
        return Invalid.field("zone", zone, f"must be that of link {link.link_id!r}, {link.zone_name!r}")
    return None


def _read_artifact(folder: Path) -> tuple[LinkModel, dict[str, Any], str]:
    """Return an artifact's model, description and fingerprint."""
    try:
        fingerprint = read_artifact(folder, verify=False).fingerprint
        return *load_model(folder, fingerprint=fingerprint), fingerprint
    except DamagedArtifact as damage:
        raise Invalid.field("folder", folder, f"must be a sound artifact: {damage.reason}") from None
    except OSError as problem:
        raise Invalid.field("folder", folder, f"must be a readable artifact: {problem.strerror}") from None


def _check_about(link: LinkInfo, described: dict[str, Any]) -> ArtifactAbout:
    try:
        about = ArtifactAbout.model_validate(described)
    except ValidationError as problem:
        first = problem.errors()[0]
        name = ".".join(map(str, ("about", *first["loc"])))
        raise Invalid.field(name, first["input"], f"{broken_rule(first)}, as training writes it") from None
    if about.link_id != link.link_id:
        raise Invalid.field("link_id", about.link_id, f"must be {link.link_id!r}, the link it is registered for")
    if (other := mismatch(link, about.zone, about.slot_minutes)) is not None:
        raise other
    if AGGREGATION in described:
        try:
            Aggregation.from_json(described[AGGREGATION])
        except ValueError as problem:
            raise Invalid.field(f"about.{AGGREGATION}", described[AGGREGATION], f"must be sound: {problem}") from None
    return about


def _check_model(link: LinkInfo, model: LinkModel) -> None:
    if isinstance(model, NetworkModel):
        horizons = model.network.horizons
        if (its := model.network.link_ids[model.link]) != link.link_id:
            raise Invalid.field("link", its, f"must be {link.link_id!r}: its place in its network is another link's")
    else:
        horizons = len(model.level_shares)
        if model.algorithm not in ALGORITHMS:
            raise Invalid.field("algorithm", model.algorithm, f"must be one of {', '.join(ALGORITHMS)}, NETWORK")
    if horizons < LEAST_HORIZONS:
        raise Invalid.field("horizons", horizons, f"must be at least {LEAST_HORIZONS}, the slots ahead that are served")
    shape, week = model.profile.expected_counts.shape, (7, link.grid.slots_per_day)
    if shape != week:
        raise Invalid.field("profile", shape, f"must have the shape {week}, weekdays by slots of a day")


def _repair(store: ModelStore, known: ModelVersion, folder: Path) -> None:
    """Store an artifact again where the one in the store is damaged or missing."""
    try:
        store.require_sound(known.folder, known.fingerprint)
    except StoreUnreachable:
        raise
    except (DamagedArtifact, OSError):
        store.add(folder, known.folder, known.fingerprint)
    known.damaged, known.size_bytes = None, store.size(known.folder)


def _remove_unless_committed(session: Session, store: ModelStore, place: str) -> None:
    """Remove an artifact from the store again if its row's transaction is rolled back.

    Where the connection fails during the commit, the row may be there or not. The artifact then
    stays: one without a row is replaced or swept, a row without one is a model that cannot be loaded.
    """
    committing = False

    def before_commit(_session: Session) -> None:
        nonlocal committing
        committing = True

    def after_rollback(_session: Session) -> None:
        if not committing:
            store.remove(place)

    event.listen(session, "before_commit", before_commit)
    event.listen(session, "after_rollback", after_rollback)
