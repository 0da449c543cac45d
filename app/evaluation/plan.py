"""The plan of an evaluation: links, days and settings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Literal

from model.estimators.parameters import whole_number
from model.link_model.lag_window import LagWindow
from model.link_model.training_plan import TrainingPlan

Method = Literal["KR", "KR_PCA", "MLKR", "KR_SML"]
METHODS: tuple[Method, ...] = ("KR", "KR_PCA", "MLKR", "KR_SML")
PROFILE, NETWORK, BEST = "profile", "NETWORK", "best"
COMPARED: tuple[str, ...] = (*METHODS, PROFILE, NETWORK, BEST)  # the columns of the report's tables
PROTOCOLS = ("paper", "product")
PAPER_NEIGHBORS, PAPER_BANDWIDTH, PAPER_STEPS = 8, 1.0, 30
LEAST_TRAIN_DAYS = 7  # detector health needs seven days' worth of sound counts
MOST_DAYS = 3660


@dataclass(frozen=True)
class EvaluationPlan:
    """Links, days, settings and protocol of an evaluation.

    Parameters
    ----------
    train_days, test_days : int
        Local days to learn from, and the days after them to forecast.
    first_day : date, optional
        First day to learn from; left out, each link's first whole local day.
    protocol : "paper" or "product"
        "paper" runs KR, KR_PCA and MLKR under the paper's settings and KR_SML as the product
        trains it; "product" trains all four as the product does.
    neighbors : int, optional
        k: under "paper" of KR, KR_PCA and MLKR (8), under "product" of all four (20).
    lags : int
    links : str, optional
        Ids of the links, separated by commas; left out, all that can be evaluated, or a sample of them.
    sample, seed : int
        How many links to draw, and the seed of the draw.
    """

    train_days: int = 22
    test_days: int = 3
    first_day: date | None = None
    protocol: str = "paper"
    neighbors: int | None = None
    lags: int = 45
    links: str | None = None
    sample: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        whole_number(self, "train_days", at_least=LEAST_TRAIN_DAYS, at_most=MOST_DAYS)
        whole_number(self, "test_days", at_least=1, at_most=MOST_DAYS)
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"protocol={self.protocol!r} is refused; it must be one of {', '.join(PROTOCOLS)}")
        if self.neighbors is not None:
            whole_number(self, "neighbors", at_least=1)
        LagWindow(self.lags)
        if self.links is not None and self.sample is not None:
            raise ValueError("links and sample are both given; they exclude each other")
        if self.link_ids == []:
            raise ValueError(f"links={self.links!r} is refused; it must name at least one link")
        if self.sample is not None:
            whole_number(self, "sample", at_least=1)
        whole_number(self, "seed", at_least=0)

    @property
    def link_ids(self) -> list[str] | None:
        """Return the ids of the links that are named, each once; None if none is."""
        if self.links is None:
            return None
        return list(dict.fromkeys(name.strip() for name in self.links.split(",") if name.strip()))

    @property
    def held_out_days(self) -> int:
        """Return how many last training days the product chooses on: its own number, or a third of a short span."""
        return min(TrainingPlan().held_out_days, self.train_days // 3)

    @property
    def held_out_reduced(self) -> bool:
        """Return whether the span is too short for the product's own number of held-out days."""
        return self.held_out_days < TrainingPlan().held_out_days

    def under_the_paper(self, method: str) -> bool:
        """Return whether a method is run under the paper's settings."""
        return self.protocol == "paper" and method in METHODS and method != "KR_SML"

    def neighbors_of(self, method: Method) -> int:
        """Return k of a method."""
        if self.under_the_paper(method):
            return self.neighbors or PAPER_NEIGHBORS
        return (self.neighbors if self.protocol == "product" else None) or TrainingPlan().n_neighbors

    def training_plan(self, method: Method) -> TrainingPlan:
        """Return how the product trains a method over these days."""
        return TrainingPlan(
            algorithm=method,
            lags=self.lags,
            n_neighbors=self.neighbors_of(method),
            held_out_days=self.held_out_days,
        )
