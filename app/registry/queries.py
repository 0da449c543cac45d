"""Queries of the registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session, defer

from app.core.database import in_values, is_sqlite
from app.links.queries import LinkInfo
from app.links.tables import Link
from app.registry.tables import Activation, ModelVersion
from model.aggregation.experts import TRAINED_EXPERTS


class ArtifactRef(NamedTuple):
    """The place and the fingerprint of the artifact of one version of a link's model."""

    link_key: int
    version: int
    folder: str
    fingerprint: str
    algorithm: str


ActiveModels = tuple[ArtifactRef, ...]  # of one link, of each algorithm one at most, in the order of activation

_REFS = select(
    ModelVersion.link_key,
    ModelVersion.version,
    ModelVersion.folder,
    ModelVersion.fingerprint,
    ModelVersion.algorithm,
)


def active_models(session: Session, link_keys: Sequence[int] | None = None) -> dict[int, ActiveModels]:
    """Return the active versions of each link that has some, of some links or all, the one activated last at the end.

    That one forecasts the link, unless an aggregate of experts does.
    """
    query = _REFS.where(ModelVersion.state == "active")
    if link_keys is not None:
        query = query.where(in_values(ModelVersion.link_key, link_keys))
    found: dict[int, ActiveModels] = {}
    for row in session.execute(query.order_by(ModelVersion.activated_at, ModelVersion.version)):
        found[row.link_key] = (*found.get(row.link_key, ()), ArtifactRef(*row))
    return found


def once_active(session: Session, link_key: int, algorithm: str | None = None) -> list[ArtifactRef]:
    """Return the versions that were active before, of one algorithm or of all, the latest first."""
    query = _REFS.where(ModelVersion.link_key == link_key, ModelVersion.state == "retired")
    if algorithm is not None:
        query = query.where(ModelVersion.algorithm == algorithm)
    query = query.join(Link, Link.link_key == ModelVersion.link_key)
    query = query.where(ModelVersion.about["zone"].as_string() == Link.zone)  # the zone may have changed since
    query = query.where(ModelVersion.activated_at.is_not(None)).order_by(ModelVersion.activated_at.desc())
    return [ArtifactRef(*row) for row in session.execute(query)]


def find_version(session: Session, link_key: int, version: int) -> ModelVersion | None:
    """Return one version of a link's trained model, if it exists."""
    query = select(ModelVersion).where(ModelVersion.link_key == link_key, ModelVersion.version == version)
    return session.scalars(query).one_or_none()


def read_versions(session: Session, link_key: int, before: int | None, most: int) -> list[ModelVersion]:
    """Return a link's trained models, the newest first, those with a version below ``before`` if given."""
    query = select(ModelVersion).where(ModelVersion.link_key == link_key)
    if before is not None:
        query = query.where(ModelVersion.version < before)
    return list(session.scalars(query.order_by(ModelVersion.version.desc()).limit(most)))


def versions_of(session: Session, link_key: int) -> list[ModelVersion]:
    """Return all trained models of a link, the newest first, without their descriptions."""
    query = select(ModelVersion).where(ModelVersion.link_key == link_key).options(defer(ModelVersion.about))
    return list(session.scalars(query.order_by(ModelVersion.version.desc())))


def with_fingerprint(session: Session, link_key: int, fingerprint: str) -> ModelVersion | None:
    """Return the trained model of a link that has this very artifact, if it is in the registry."""
    query = select(ModelVersion).where(ModelVersion.link_key == link_key, ModelVersion.fingerprint == fingerprint)
    return session.scalars(query.order_by(ModelVersion.version).limit(1)).one_or_none()


def newest_version(session: Session, link_key: int) -> int:
    """Return the highest version of a link; 0 without any."""
    newest = session.scalar(select(func.max(ModelVersion.version)).where(ModelVersion.link_key == link_key))
    return newest or 0


def active_rows(session: Session, link_key: int) -> list[ModelVersion]:
    """Return the active versions of a link, of each algorithm one at most, in the order of activation."""
    query = select(ModelVersion).where(ModelVersion.link_key == link_key, ModelVersion.state == "active")
    return list(session.scalars(query.order_by(ModelVersion.activated_at, ModelVersion.version)))


def serving_versions(session: Session, link: LinkInfo) -> set[int]:
    """Return the active versions that forecast a link: its experts, or the one that was activated last."""
    rows = active_rows(session, link.link_key)
    serving = [row for row in rows if row.algorithm in TRAINED_EXPERTS] if link.has_ensemble else rows[-1:]
    return {row.version for row in serving}


def newest_candidates(session: Session) -> dict[int, list[int]]:
    """Return the newest candidates of every link that has some, by link key.

    They are those that are newer than the active version of their algorithm, or else the newest of all.
    """
    columns = ModelVersion.link_key, ModelVersion.algorithm, func.max(ModelVersion.version)
    newest = select(*columns).group_by(ModelVersion.link_key, ModelVersion.algorithm)
    active = {
        (key, name): version for key, name, version in session.execute(newest.where(ModelVersion.state == "active"))
    }
    candidates: dict[int, list[int]] = {}
    newer: dict[int, list[int]] = {}
    for key, name, version in session.execute(newest.where(ModelVersion.state == "candidate")):
        candidates.setdefault(key, []).append(version)
        if version > active.get((key, name), 0):
            newer.setdefault(key, []).append(version)
    return {key: sorted(newer.get(key, [max(versions)])) for key, versions in candidates.items()}


def remove_versions(session: Session, ids: Sequence[int]) -> None:
    """Delete rows from the registry."""
    session.execute(delete(ModelVersion).where(in_values(ModelVersion.id, ids)))


def newest_versions(session: Session) -> tuple[dict[str, int], set[str]]:
    """Return the highest version of every link, by its folder in the store, and the places of all artifacts."""
    newest: dict[str, int] = {}
    places = set()
    for place, version in session.execute(select(ModelVersion.folder, ModelVersion.version)):
        places.add(place)
        folder = place.rpartition("/")[0]
        newest[folder] = max(version, newest.get(folder, 0))
    return newest, places


def networks_in_use(session: Session) -> set[str]:
    """Return the fingerprints of the networks that trained models in the registry refer to."""
    network = ModelVersion.about["network"].as_string()
    found = session.scalars(select(network).where(ModelVersion.algorithm == "NETWORK").distinct())
    return {fingerprint for fingerprint in found if fingerprint is not None}


def registry_size(session: Session) -> tuple[int, int]:
    """Return the number of trained models in the registry, and the bytes of their artifacts."""
    versions, size = session.execute(select(func.count(), func.sum(ModelVersion.size_bytes))).one()
    return versions, int(size or 0)


def models_by_state(session: Session) -> dict[str, int]:
    """Return the number of trained models in the registry by state; states without any are left out."""
    query = select(ModelVersion.state, func.count()).group_by(ModelVersion.state)
    return dict(session.execute(query).all())


def active_versions(session: Session) -> set[tuple[int, int]]:
    """Return the link key and version of every active model."""
    query = select(ModelVersion.link_key, ModelVersion.version).where(ModelVersion.state == "active")
    return {(key, version) for key, version in session.execute(query)}


def lock_versions(session: Session, link_key: int) -> None:
    """Lock a link's models against other writers; SQLite has only one writer anyway."""
    if not is_sqlite(session):
        # Not the key, so that a transaction that stores counts of the link need not wait.
        query = select(Link.link_key).where(Link.link_key == link_key)
        session.execute(query.with_for_update(key_share=True)).all()


def activations_before(session: Session, link_key: int, cursor: int | None, limit: int) -> list[Activation]:
    """Return activations of a link, the newest first, those with an id below ``cursor`` if given."""
    query = select(Activation).where(Activation.link_key == link_key).order_by(Activation.id.desc()).limit(limit)
    if cursor is not None:
        query = query.where(Activation.id < cursor)
    return list(session.scalars(query))


def last_activation(session: Session, link_key: int, version: int) -> Activation | None:
    """Return the last activation of a version of a link."""
    query = select(Activation).where(Activation.link_key == link_key, Activation.version == version)
    return session.scalars(query.order_by(Activation.id.desc()).limit(1)).first()


def activations_after(session: Session, seen: int, limit: int) -> list[tuple[Activation, str]]:
    """Return activations newer than one, the oldest first, with their links' ids."""
    query = select(Activation, Link.link_id).join(Link, Link.link_key == Activation.link_key)
    rows = session.execute(query.where(Activation.id > seen).order_by(Activation.id).limit(limit))
    return [(row, link_id) for row, link_id in rows]


def newest_activation(session: Session) -> int:
    """Return the number of the newest activation; 0 before the first."""
    return session.scalar(select(func.max(Activation.id))) or 0
