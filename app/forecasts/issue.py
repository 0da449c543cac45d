"""Issue forecasts: window or context, trained model, statement, stored. Where that cannot be, degrade and say why."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from app.core.errors import NotYet
from app.counts.queries import Rows
from app.counts.series import LinkSeries
from app.forecasts.network_ask import NetworkAsker, Question
from app.forecasts.network_rows import NetworkRows
from app.forecasts.usual import LEVEL, LINKS_AT_ONCE, Said, Usual, UsualCounts, Wanted, last_count
from app.forecasts.windows import HORIZONS, Windows
from app.links.queries import PROFILE_WON, WITHDRAWN, LinkInfo
from app.registry.loaded import Loaded, LoadedModels, Looked
from app.registry.queries import Place, active_models, once_active
from app.registry.store import ArtifactAway
from model.artifacts.artifact import DamagedArtifact
from model.link_model.forecast_each import forecast_each
from model.link_model.lag_window import TooManyGaps
from model.link_model.trained_model import Forecasts, TrainedModel
from model.network_model.network import NetworkModel

Array = NDArray[np.float64]

PROFILE, LAST_COUNT = "profile", "last_count"
DECIMALS = 3
AT_ONCE = 16  # models on lags that speak together, once each has found its neighbours
NO_MODEL = "the link has no trained model"
MODEL_WITHDRAWN = "the link's trained model was withdrawn"
WITHOUT_MODEL = (None, NO_MODEL, MODEL_WITHDRAWN)  # reasons of a link that has no active model
NO_PROFILE = "there is no profile: its latest weeks have too few counts"

Chosen = tuple[Loaded | None, str | None]  # a sound model, and why it is not the active one

log = logging.getLogger("flowcast.forecasts")


def reason_without_model(link: LinkInfo) -> str | None:
    """Return why a link without an active model is degraded; None where its profile won on held-out days."""
    return {PROFILE_WON: None, WITHDRAWN: MODEL_WITHDRAWN}.get(link.choice or "", NO_MODEL)


class Statement(NamedTuple):
    """What is said about the slots after one, all horizons."""

    link: LinkInfo
    as_of: int  # Unix seconds of the newest slot known
    model_version: int  # 0 where no trained model spoke
    method: str
    degraded_reason: str | None
    filled_lags: int
    level: float
    expected: list[float]
    lower: list[float | None]
    upper: list[float | None]
    usual: list[float | None]
    issued_at: int  # microseconds since 1970
    first_slot: int | None = None  # of horizon 1, where that is not the slot after ``as_of``

    def slot(self, horizon: int) -> int:
        """Start of the slot that is ``horizon`` ahead."""
        before = self.as_of if self.first_slot is None else self.first_slot - self.link.slot_seconds
        return before + horizon * self.link.slot_seconds


class Spoken(NamedTuple):
    """Who says what, and why not somebody better."""

    version: int
    method: str
    reason: str | None
    filled_lags: int
    level: float
    said: Said
    usual: Array | None


@dataclass
class Issuer:
    """States forecasts with the models in memory, and knows what is usual where there is none."""

    models: LoadedModels
    usual: UsualCounts = field(default_factory=UsualCounts)
    networks: NetworkAsker = field(default_factory=NetworkAsker)

    def state(
        self, session: Session, links: Sequence[LinkInfo], as_of: dict[int, int], stored: Rows | None = None
    ) -> list[Statement]:
        """State the forecasts of links from their slots ``as_of``, by link key; links without one are left out.

        ``stored`` are counts known to be in the database just so, which need not be read again.
        """
        issued_at = time.time_ns() // 1000  # before counts are read: what is deleted meanwhile makes it invalid
        links = [link for link in links if link.link_key in as_of]
        active = active_models(session, [link.link_key for link in links])
        self.models.prepare(active.values())
        looked: Looked = {}
        chosen = {link.link_key: self.choose_model(session, link, active.get(link.link_key), looked) for link in links}
        windows = Windows(session, links, as_of, {key: loaded for key, (loaded, _) in chosen.items()}, stored)
        asked, reasons = self._ask(links, as_of, chosen, windows)
        self._ask_networks(session, links, as_of, chosen, asked, reasons)
        self._ask_profiles(
            session, [link for link in links if link.link_key not in asked], as_of, chosen, asked, reasons
        )
        return [
            as_statement(link, as_of[link.link_key], asked[link.link_key], issued_at)
            for link in links
            if link.link_key in asked
        ]

    def _ask(
        self, links: Sequence[LinkInfo], as_of: dict[int, int], chosen: Mapping[int, Chosen], windows: Windows
    ) -> tuple[dict[int, Spoken], dict[int, str | None]]:
        """Let models on lags speak, all at once; give what they say, and for the other links the reason why not."""
        ready, reasons = [], {key: reason for key, (_, reason) in chosen.items()}
        for link in links:
            loaded = chosen[link.link_key][0]
            if loaded is None or not isinstance(loaded.model, TrainedModel):
                continue
            try:
                newest, model = as_of[link.link_key], loaded.model
                usual = windows.usual(link, newest, model)
                ready.append((link, loaded.version, model, usual, *windows.latest(link, newest, model)))
            except TooManyGaps as gaps:
                reasons[link.link_key] = str(gaps)
            except Exception as problem:
                log.exception("a link's window failed", extra={"link": link.link_id})
                reasons[link.link_key] = f"its window failed: {type(problem).__name__}"
        forecasts: list[Forecasts] = []
        for begin in range(0, len(ready), AT_ONCE):
            part = ready[begin : begin + AT_ONCE]
            forecasts += forecast_each([one[2] for one in part], [one[4] for one in part])
        spoken = {}
        for (link, version, model, usual, _, filled), said in zip(ready, forecasts, strict=True):
            assert model.bands is not None
            spoken[link.link_key] = Spoken(
                version,
                model.algorithm,
                reasons[link.link_key],
                filled,
                model.bands.level,
                Said(said.expected[0], said.lower[0], said.upper[0]),
                usual,
            )
        return spoken, reasons

    def _ask_networks(
        self,
        session: Session,
        links: Sequence[LinkInfo],
        as_of: dict[int, int],
        chosen: Mapping[int, Chosen],
        spoken: dict[int, Spoken],
        reasons: dict[int, str | None],
    ) -> None:
        """Let models of networks speak; add what they say, and for the other links the reason why not."""
        questions, versions = [], {}
        for link in links:
            loaded = chosen[link.link_key][0]
            if loaded is not None and isinstance(loaded.model, NetworkModel):
                questions.append(Question(link, loaded.model, as_of[link.link_key]))
                versions[link.link_key] = loaded.version
        found, silent = self.networks.ask(session, questions)
        reasons.update(silent)
        for link, model, _ in questions:
            said = found.get(link.link_key)
            if said is not None:
                assert model.bands is not None
                key, level = link.link_key, model.bands.level
                spoken[key] = Spoken(
                    versions[key], model.algorithm, reasons[key], said.filled, level, said.said, said.usual
                )

    def _ask_profiles(
        self,
        session: Session,
        links: Sequence[LinkInfo],
        as_of: dict[int, int],
        chosen: Mapping[int, Chosen],
        spoken: dict[int, Spoken],
        reasons: Mapping[int, str | None],
    ) -> None:
        """Add the forecasts of links that no model has made one for, from their profiles or else their last counts."""
        wanted = []
        for link in links:
            loaded = chosen[link.link_key][0]
            own = (loaded.model.profile, loaded.version) if loaded else (None, 0)
            wanted.append(Wanted(link, as_of[link.link_key], *own))
        for begin in range(0, len(wanted), LINKS_AT_ONCE):
            part = wanted[begin : begin + LINKS_AT_ONCE]
            known = self.usual.look_up(session, part)
            for one in part:
                key = one.link.link_key
                try:
                    spoken[key] = self._from_past(one, known[key], reasons[key])
                except NotYet:
                    raise
                except Exception:  # one bad link must not spoil the others' answer
                    log.exception("a link's forecast failed", extra={"link": one.link.link_id})

    def _from_past(self, wanted: Wanted, known: Usual | Rows, reason: str | None) -> Spoken:
        link, newest, _, version = wanted
        usual = self.usual.learn(wanted, known)
        if isinstance(usual, LinkSeries):
            said = last_count(usual, newest, HORIZONS)
            return Spoken(0, LAST_COUNT, reason or NO_PROFILE, 0, LEVEL, said, None)
        said = usual.at(link, newest + link.slot_seconds, HORIZONS)
        return Spoken(version, PROFILE, reason, 0, LEVEL, said, said.expected)

    def choose_model(
        self, session: Session, link: LinkInfo, place: Place | None, looked: Looked | None = None
    ) -> Chosen:
        """Find a sound model: the active one, or the last before it, with the reason for the second best."""
        if place is None:
            return None, reason_without_model(link)
        try:
            return self.models.get(place, looked), None
        except DamagedArtifact as damage:
            wrong = "out of reach" if isinstance(damage, ArtifactAway) else "damaged"
            reason = f"the artifact of version {place.version} is {wrong}: {damage.reason}"
        for earlier in once_active(session, place.link_key):
            try:
                return self.models.get(earlier, looked), f"{reason}; version {earlier.version} answers"
            except DamagedArtifact:
                continue
        return None, reason

    def model_of(self, session: Session, said: Statement) -> Loaded | None:
        """Give the model that made a statement; None where no model spoke."""
        key = said.link.link_key
        loaded, _ = self.choose_model(session, said.link, active_models(session, [key]).get(key))
        silent = loaded is None or loaded.version != said.model_version or said.method == PROFILE
        return None if silent else loaded

    def window_of(self, session: Session, said: Statement, loaded: Loaded, model: TrainedModel) -> Array | None:
        """Give the lag window that a statement was made from; None where counts were corrected away since."""
        key = said.link.link_key
        windows = Windows(session, [said.link], {key: said.as_of}, {key: loaded})
        try:
            return windows.latest(said.link, said.as_of, model)[0]
        except TooManyGaps:
            return None

    def rows_of(self, session: Session, said: Statement, model: NetworkModel) -> NetworkRows | None:
        """Give the rows of context that a statement was made from; None where counts were corrected away since."""
        try:
            return self.networks.rows(session, Question(said.link, model, said.as_of))
        except TooManyGaps:
            return None


def as_statement(link: LinkInfo, newest: int, spoken: Spoken, issued_at: int) -> Statement:
    """Return what was said as a statement, rounded."""
    said = spoken.said
    return Statement(
        link,
        newest,
        spoken.version,
        spoken.method,
        spoken.reason,
        spoken.filled_lags,
        spoken.level,
        _rounded(said.expected),
        _or_none(said.lower),
        _or_none(said.upper),
        _or_none(spoken.usual),
        issued_at,
    )


def _rounded(values: Array) -> list[float]:
    return [round(value, DECIMALS) for value in values[:HORIZONS].tolist()]


def _or_none(values: Array | None) -> list[float | None]:
    return [None] * HORIZONS if values is None else [*_rounded(values)]
