"""Activate a version of a link's trained models, newer or older, or withdraw active ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.core.errors import Conflict, FieldError, NotFound, ProblemType
from app.links.queries import WITHDRAWN, LinkInfo, set_choice
from app.links.tables import Link
from app.registry.ensembles import AGGREGATION, change_experts, has_ensemble, start_aggregation
from app.registry.queries import active_rows, find_version, lock_versions
from app.registry.store import ModelStore, StoreUnreachable
from app.registry.tables import NO_VERSION, Activation, ModelVersion
from model.aggregation.experts import TRAINED_EXPERTS
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
    start: dict[str, Any] | None = None,
    now: datetime | None = None,
) -> ModelVersion:
    """Retire the active version of an algorithm and activate another; rolling back to a retired one is the same.

    An expert, which was trained with others, takes part in the link's aggregate, whose weights go on, or begin with
    ``start``. Any other version forecasts the link alone. The link's history records who did it, why, and the figures
    it was chosen by.

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
    rows = active_rows(session, link.link_key)
    aggregates, is_expert = has_ensemble(session, link.link_key), AGGREGATION in chosen.about
    if chosen in rows and aggregates == is_expert and (is_expert or chosen is rows[-1]):
        return chosen
    active = next((row for row in rows if row.algorithm == chosen.algorithm and row is not chosen), None)
    replaced = rows[-1] if active is None and rows and not is_expert else active
    if active is not None:
        _retire(active, moment)
        session.flush()  # before the other is activated: the index allows one active version at any moment
    moment = max([moment, *(_after(row.activated_at) for row in rows if row.activated_at is not None)])
    if not is_expert:
        set_choice(session, link.link_key, None)
    elif aggregates and start is None:
        change_experts(session, link.link_key)
    else:
        start_aggregation(session, link, start or chosen.about[AGGREGATION])
    chosen.state, chosen.activated_at, chosen.retired_at = "active", moment, None
    session.add(
        Activation(
            link_key=link.link_key,
            version=version,
            previous_version=None if replaced is None else replaced.version,
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
    algorithm: str | None = None,
    by: str = "command line",
    reason: str | None = None,
) -> list[Activation]:
    """Retire the active version of an algorithm, or of all, without a successor; return the withdrawals.

    A link without active versions is forecast by its profile.

    Raises
    ------
    Conflict
        The link has no such active version.
    """
    lock_versions(session, link.link_key)
    rows = active_rows(session, link.link_key)
    withdrawn = [row for row in rows if algorithm in (None, row.algorithm)]
    if not withdrawn:
        which = "active model" if algorithm is None else f"active {algorithm} model"
        raise Conflict(ProblemType.NO_ACTIVE_MODEL, f"link {link.link_id!r} has no {which} that could be withdrawn")
    withdrawals = [
        Activation(
            link_key=link.link_key,
            version=NO_VERSION,
            previous_version=row.version,
            activated_at=_retire(row, datetime.now(UTC)),
            activated_by=by,
            reason=reason,
        )
        for row in withdrawn
    ]
    left = [row.algorithm for row in rows if row not in withdrawn]
    if not left:
        set_choice(session, link.link_key, WITHDRAWN)
    elif has_ensemble(session, link.link_key):
        if set(left) & set(TRAINED_EXPERTS):
            change_experts(session, link.link_key)
        else:  # the one that is left forecasts alone
            set_choice(session, link.link_key, None)
    session.add_all(withdrawals)
    session.flush()
    return withdrawals


def _retire(active: ModelVersion, moment: datetime) -> datetime:
    """Retire an active version; return when, which is after it was activated also if the clock was set back."""
    if active.activated_at is not None:  # a rollback goes by the order
        moment = max(moment, _after(active.activated_at))
    active.state, active.retired_at = "retired", moment
    return moment


def _after(moment: datetime) -> datetime:
    return moment + timedelta(microseconds=1)


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
