"""A small synthetic network: a shared week, links of different size, and noise that links share."""

import numpy as np

from model.network_model.plan import NetworkPlan
from model.network_model.series import NetworkCalendar, NetworkSeries

A_DAY = 24  # slots of an hour
QUICK = NetworkPlan(metric_rows=300, max_iter=2, network_rows=1500, n_neighbors=40, held_out_days=4)


def synthetic_calendar(days: int, first_weekday: int = 0) -> NetworkCalendar:
    slots = np.arange(days * A_DAY)
    day = slots // A_DAY
    return NetworkCalendar((day + first_weekday) % 7, slots % A_DAY, day + 19_000, A_DAY)


def synthetic_network(links: int = 9, days: int = 18, seed: int = 0) -> NetworkSeries:
    rng = np.random.default_rng(seed)
    calendar = synthetic_calendar(days)
    hour, weekend = calendar.slot_of_day, calendar.weekday >= 5
    morning, evening = np.exp(-((hour - 8) ** 2) / 6), np.exp(-((hour - 17) ** 2) / 8)
    level = rng.uniform(60, 300, links)[:, None]
    morning_share = rng.uniform(0.2, 0.8, links)[:, None]
    week = 0.15 + np.where(
        weekend, 0.5 * np.exp(-((hour - 14) ** 2) / 20), morning_share * morning + (1 - morning_share) * evening
    )
    drift = np.zeros(len(calendar))
    for t in range(1, len(calendar)):
        drift[t] = 0.8 * drift[t - 1] + 0.06 * rng.standard_normal()
    counts = rng.poisson(np.maximum(level * week * (1 + drift), 0.0)).astype(np.float64)
    junction = np.arange(links) // 3
    upstream = tuple((link - 1,) if link % 3 else () for link in range(links))
    return NetworkSeries(
        tuple(f"{j}-{i}" for i, j in enumerate(junction)), counts, calendar, junction, upstream, first=400_000
    )
