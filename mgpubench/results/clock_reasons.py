"""Why a GPU does not run at its highest clocks: the reasons that NVIDIA's driver gives, by bit."""

from __future__ import annotations

CLOCK_REASONS = {
    0x001: "idle",
    0x002: "clocks-setting",
    0x004: "power-limit",
    0x008: "hardware-slowdown",
    0x010: "sync-boost",
    0x020: "heat",
    0x040: "hardware-heat",
    0x080: "power-brake",
    0x100: "display-clocks",
}
"""The reasons under the names that our files have."""

THROTTLING = {
    "power-limit": "its power limit",
    "hardware-slowdown": "a hardware slowdown (heat or power)",
    "heat": "heat",
    "hardware-heat": "heat (hardware)",
    "power-brake": "a power brake",
}
"""The reasons that slow a GPU down under load, in words. The others are no fault: it is idle, or a
user has set its clocks."""


def names_of_reasons(mask: int) -> list[str]:
    """The names of the reasons in a mask; a bit without a name is shown as a number."""
    bits = [1 << place for place in range(mask.bit_length()) if mask >> place & 1]
    return [CLOCK_REASONS.get(bit, f"{bit:#x}") for bit in bits]
