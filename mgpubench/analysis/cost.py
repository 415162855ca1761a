"""What a million samples cost: the hours of the GPUs, and the energy that they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mgpubench.analysis.row import Row

JOULES_PER_KWH = 3.6e6
SECONDS_PER_HOUR = 3600.0
MILLION = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """What a person pays. None: it does not count."""

    per_hour: float | None = None
    """For one GPU."""
    per_kwh: float | None = None


def cost_per_million_samples(
    prices: Prices, num_devices: int, throughput: float | None, per_joule: float | None
) -> float | None:
    """The price of a million samples: of the hours of all GPUs, plus of the energy.

    None if a price is given for something that is not known.
    """
    total = 0.0
    if prices.per_hour is not None:
        if not throughput:
            return None
        hours = MILLION / throughput / SECONDS_PER_HOUR
        total += prices.per_hour * num_devices * hours
    if prices.per_kwh is not None:
        if not per_joule:
            return None
        total += prices.per_kwh * MILLION / per_joule / JOULES_PER_KWH
    return total


def add_costs(rows: Sequence[Row], prices: Prices) -> list[Row]:
    """The rows with their costs. Rows of a CPU have none: their devices share the cores."""
    return [replace(row, cost_per_million_samples=_cost(row, prices)) for row in rows]


def _cost(row: Row, prices: Prices) -> float | None:
    if row.group.device_type == "cpu":
        return None
    throughput = row.throughput_samples_per_s
    return cost_per_million_samples(prices, row.num_devices, throughput, row.samples_per_joule)
