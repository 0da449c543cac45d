"""Compute the weights of links' experts again, from the counts that are stored now."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sqlalchemy import Engine

from app.core.database import reading, writing
from app.counts.queries import newest_slots
from app.forecasts.compute import Forecaster
from app.forecasts.queries import lock_ensembles, save_states, stored_ensembles
from app.links.queries import LinkInfo
from app.registry.queries import active_models

ATTEMPTS = 3  # for a link whose state goes on while it is computed, as counts arrive


def rebuild_weights(engine: Engine, forecaster: Forecaster, links: Sequence[LinkInfo]) -> set[str]:
    """Compute and store the states of ensembles, slot by slot from when their experts last changed.

    Return the ids of the links that are done. A link whose state went on each time it was computed, or whose models
    cannot be read, is left as it is.
    """
    done: set[str] = set()
    for _ in range(ATTEMPTS):
        waiting = [link for link in links if link.link_id not in done]
        done |= _rebuild(engine, forecaster, waiting) if waiting else set()
    return done


def _rebuild(engine: Engine, forecaster: Forecaster, links: Sequence[LinkInfo]) -> set[str]:
    by_key = {link.link_key: link for link in links}
    with reading(engine) as session:
        stored = stored_ensembles(session, list(by_key))
        active, newest = active_models(session, list(by_key)), newest_slots(session, list(by_key))
        forecaster.models.prepare([ref for refs in active.values() for ref in refs])
        requests, starts, without_count = [], {}, set()
        for key, one in stored.items():
            if one.as_of is None or key not in newest:
                without_count.add(key)
                continue
            end = min(one.as_of, newest[key])  # newer counts may have been deleted
            request = forecaster.ensemble_request(session, by_key[key], end, active.get(key, ()))
            if all(model.reason is None for model in request.models.values()):  # or weights would be those of others
                starts[key] = one._replace(as_of=one.start_as_of, state=one.start)
                requests.append(request)
        outcomes = forecaster.ensembles.compute(session, requests, starts, most_slots=sys.maxsize)
    updates = {key: (one.update, stored[key].issued_version) for key, one in outcomes.items()}
    with writing(engine, derived=True) as session:
        revisions = lock_ensembles(session, list(updates))
        same = {key: one for key, one in updates.items() if one[0].revision == revisions.get(key)}
        save_states(session, same)
    return {by_key[key].link_id for key in same.keys() | without_count}
