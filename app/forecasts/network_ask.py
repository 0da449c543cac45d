"""Let the models of networks speak, all links of a network together."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app.forecasts.network_rows import NetworkRows, rows_of
from app.forecasts.pulse import Pulses
from app.forecasts.usual import Said
from app.links.queries import LinkInfo
from model.link_model.lag_window import TooManyGaps
from model.link_model.profile import Array
from model.network_model.context import MOST_FILLED, RECENT
from model.network_model.forecast_each import forecast_network
from model.network_model.network import NetworkModel

log = logging.getLogger("flowcast.forecasts")


class Question(NamedTuple):
    """A link of a network, its model, and its newest slot in Unix seconds."""

    link: LinkInfo
    model: NetworkModel
    newest: int


class NetworkSaid(NamedTuple):
    """What a model says of the next slots, what is usual in them, and how many recent slots had no count."""

    said: Said
    usual: Array
    filled: int


@dataclass
class NetworkAsker:
    """Asks models of networks, and keeps their pulses."""

    pulses: Pulses = field(default_factory=Pulses)

    def ask(self, session: Session, questions: Sequence[Question]) -> tuple[dict[int, NetworkSaid], dict[int, str]]:
        """Give what models say, by link key, and for the other links the reason why not."""
        said: dict[int, NetworkSaid] = {}
        reasons: dict[int, str] = {}
        for group in _alike(questions):
            self._ask_together(session, group, said, reasons)
        return said, reasons

    def rows(self, session: Session, question: Question) -> NetworkRows:
        """Give the rows of context of one link; with too many gaps there are none."""
        link, model, newest = question
        rows = rows_of(session, self.pulses, [link], [model], newest)
        if (reason := too_many_gaps(rows.filled[0])) is not None:
            raise TooManyGaps(reason)
        return rows

    def _ask_together(
        self, session: Session, group: Sequence[Question], said: dict[int, NetworkSaid], reasons: dict[int, str]
    ) -> None:
        try:
            self._speak(session, group, said, reasons)
        except SQLAlchemyError:
            raise
        except Exception as problem:
            if len(group) > 1:  # one bad link must not spoil the others' answer
                for question in group:
                    self._ask_together(session, [question], said, reasons)
                return
            log.exception("a link's context failed", extra={"link": group[0].link.link_id})
            reasons[group[0].link.link_key] = f"its context failed: {type(problem).__name__}"

    def _speak(
        self, session: Session, group: Sequence[Question], said: dict[int, NetworkSaid], reasons: dict[int, str]
    ) -> None:
        models = [question.model for question in group]
        rows = rows_of(session, self.pulses, [question.link for question in group], models, group[0].newest)
        forecasts = forecast_network(models, rows.columns, rows.usual)
        scale = np.array([model.scale for model in models])[:, None]
        center = np.array([model.center for model in models])[:, None]
        usual = np.maximum(rows.usual * scale + center, 0.0)
        for i, question in enumerate(group):
            reason = too_many_gaps(rows.filled[i])
            if reason is None and not np.isfinite(forecasts.expected[i]).all():
                reason = "its network has no profile of it"
            if reason is None:
                found = Said(forecasts.expected[i], forecasts.lower[i], forecasts.upper[i])
                said[question.link.link_key] = NetworkSaid(found, usual[i], rows.filled[i])
            else:
                reasons[question.link.link_key] = reason


def _alike(questions: Sequence[Question]) -> list[list[Question]]:
    """Group questions whose rows can be made together: of one network, as of one slot."""
    groups: dict[tuple[int, int, str, int], list[Question]] = {}
    for question in questions:
        link = question.link
        key = (id(question.model.network), question.newest, link.zone_name, link.slot_minutes)
        groups.setdefault(key, []).append(question)
    return list(groups.values())


def too_many_gaps(filled: int) -> str | None:
    """Return the reason not to use a model where too many recent counts are filled in; None where few are."""
    most = int(MOST_FILLED * RECENT)
    if filled <= most:
        return None
    return f"{filled} of {RECENT} lags are missing; at most {most} may be filled"
