"""Activate a version of a link's trained model, newer or older, or withdraw the active one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.core.errors import Conflict, FieldError, NotFound, ProblemType
from app.links.queries import WITHDRAWN, LinkInfo, set_choice
from app.links.tables import Link
from app.registry.queries import active_model, find_version, lock_versions
from app.registry.store import ModelStore, StoreUnreachable
from app.registry.tables import NO_VERSION, Activation, ModelVersion
from model.artifacts.artifact import DamagedArtifact


def activate(
    session: Session,
    store: ModelStore,
    link: LinkInfo,
    version: int,
    *,
    by: str = "command line",
    reason: str | None = None,
    figures: dict[str, Any] | None = None,
    now: datetime | None = None,
) -> ModelVersion:
    """Retire the active version and activate another; rolling back to a retired one is the same.

    The link's history records who did it, why, and the figures it was chosen by.

    Raises
    ------
    NotFound
        The link has no such version.
    Conflict
        The version's artifact cannot be loaded, or it was trained in another zone than the link has now.
    """
    moment = now or datetime.now(UTC)
    lock_versions(session, link.link_key)
    chosen = version_or_404(session, link, version)
    _require_same_zone(session, link, chosen)
    _require_sound(store, link, chosen)
    chosen.damaged = None
    active = active_model(session, link.link_key)
    if active is chosen:
        return chosen
    if active is not None:
        moment = _retire(active, moment)
        session.flush()  # before the other is activated: the index allows one active version at any moment
    set_choice(session, link.link_key, None)
    chosen.state, chosen.activated_at, chosen.retired_at = "active", moment, None
    session.add(
        Activation(
            link_key=link.link_key,
            version=version,
            previous_version=None if active is None else active.version,
            activated_at=moment,
            activated_by=by,
            reason=reason,
            figures=figures,
        )
    )
    session.flush()
    return chosen


def deactivate(
    session: Session,
    link: LinkInfo,
    *,
    by: str = "command line",
    reason: str | None = None,
) -> Activation:
    """Retire the active version without a successor, so that the link is forecast by its profile.

    Raises
    ------
    Conflict
        The link has no active version.
    """
    lock_versions(session, link.link_key)
    active = active_model(session, link.link_key)
    if active is None:
        raise Conflict(
            ProblemType.NO_ACTIVE_MODEL, f"link {link.link_id!r} has no active model that could be withdrawn"
        )
    moment = _retire(active, datetime.now(UTC))
    set_choice(session, link.link_key, WITHDRAWN)
    withdrawal = Activation(
        link_key=link.link_key,
        version=NO_VERSION,
        previous_version=active.version,
        activated_at=moment,
        activated_by=by,
        reason=reason,
    )
    session.add(withdrawal)
    session.flush()
    return withdrawal


def _retire(active: ModelVersion, moment: datetime) -> datetime:
    """Retire the active version; return when, which is after it was activated also if the clock was set back."""
    if active.activated_at is not None:  # a rollback goes by the order
        moment = max(moment, active.activated_at + timedelta(microseconds=1))
    active.state, active.retired_at = "retired", moment
    return moment


def version_or_404(session: Session, link: LinkInfo, version: int) -> ModelVersion:
    """Return one version of a link's trained model, or raise ``NotFound``."""
    found = find_version(session, link.link_key, version)
    if found is None:
        raise NotFound(
            f"link {link.link_id!r} has no trained model of version {version}",
            [FieldError("version", str(version), "must name a version of the link's models")],
        )
    return found


def _require_same_zone(session: Session, link: LinkInfo, chosen: ModelVersion) -> None:
    # Read again: the zone may have changed since the link was read, as before a long training.
    zone, learnt = session.scalar(select(Link.zone).where(Link.link_key == link.link_key)), chosen.about.get("zone")
    if learnt not in (zone, None):
        rule = f"must have been trained in the link's zone, {zone!r}, not in {learnt!r}; retrain the link"
        raise _refusal(ProblemType.ZONE_MISMATCH, link, chosen, f"it {rule}", rule)


def _require_sound(store: ModelStore, link: LinkInfo, chosen: ModelVersion) -> None:
    try:
        store.require_sound(chosen.folder, chosen.fingerprint)
    except StoreUnreachable as problem:
        raise _refusal(
            ProblemType.STORE_UNREACHABLE,
            link,
            chosen,
            str(problem),
            "must have an artifact in a store that is reachable",
        ) from None
    except (DamagedArtifact, OSError) as damage:
        reason = damage.reason if isinstance(damage, DamagedArtifact) else type(damage).__name__
        rule = f"must have a sound artifact: {reason}"
        raise _refusal(ProblemType.DAMAGED_ARTIFACT, link, chosen, f"its artifact is damaged: {reason}", rule) from None


def _refusal(problem_type: ProblemType, link: LinkInfo, chosen: ModelVersion, why: str, rule: str) -> Conflict:
    return Conflict(
        problem_type,
        f"version {chosen.version} of link {link.link_id!r} is not activated; {why}",
        [FieldError("version", str(chosen.version), rule)],
    )
