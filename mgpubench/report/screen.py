"""What the live screen shows, as lines of text that fit into a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mgpubench.format import UNKNOWN, format_duration, format_rate, plain
from mgpubench.results.telemetry import MACHINE, Sample

NARROW = 60
"""Below this width a line shows only load, temperature and power."""

BLOCKS = "".join(chr(code) for code in range(0x2581, 0x2589))
"""Characters of eight heights."""

ELLIPSIS = "..."


@dataclass(slots=True)
class ScreenState:
    """All that the screen shows."""

    title: str = ""
    """The run."""
    completed: int = 0
    total: int | None = None
    """Steps done and to do in this call."""
    elapsed_s: float = 0.0
    rates: list[float] = field(default_factory=list)
    """Samples per second, once a second, the newest last."""
    note: str = ""
    """The rate of the run, and the loss."""
    devices: Mapping[str, Sample] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    """The newest lines last."""


def draw(state: ScreenState, width: int, height: int) -> list[str]:
    """At most `height` lines of at most `width` characters."""
    lines = [*_about_run(state, width), "", *_device_lines(state.devices, width)]
    room = height - len(lines) - 1
    if room > 0 and state.messages:
        lines += ["", *state.messages[-room:]]
    return [_cut(line, width) for line in lines[:height]]


def _about_run(state: ScreenState, width: int) -> list[str]:
    total = UNKNOWN if state.total is None else str(state.total)
    elapsed = format_duration(state.elapsed_s)
    rate = f" {format_rate(state.rates[-1] if state.rates else None)} samples/s"
    return [
        f"{state.title}",
        f"step {state.completed} of {total}, {elapsed}"
        + (f", {state.note}" if state.note and width >= NARROW else ""),
        sparkline(state.rates, max(1, width - len(rate))) + rate,
    ]


def sparkline(values: Sequence[float], width: int) -> str:
    """The newest values as a row of blocks, the highest one being full."""
    shown = values[-width:]
    highest = max(shown, default=0.0)
    if highest <= 0:
        return ""
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[round(max(0.0, value) / highest * top)] for value in shown)


def _device_lines(devices: Mapping[str, Sample], width: int) -> list[str]:
    """A header, a line for each GPU as nvidia-smi numbers them, and one for the machine."""
    gpus = [sample for device, sample in devices.items() if device != MACHINE]
    rows = [_header(width)] if gpus else []
    rows += [_gpu_line(number, sample, width) for number, sample in enumerate(gpus)]
    if MACHINE in devices:
        rows.append(_machine_line(devices[MACHINE], width))
    return rows


def _header(width: int) -> str:
    if width < NARROW:
        return f"{'GPU':<4}{'load':>6}{'temp':>7}{'power':>8}"
    return (
        f"{'GPU':<4}{'load':>6}{'memory GiB':>15}{'temp':>7}{'power':>8}{'clock':>10}  held back by"
    )


def _gpu_line(number: int, sample: Sample, width: int) -> str:
    if sample.error and sample.utilization is None and sample.power_w is None:
        return f"{number:<4}{sample.error}"
    load, heat = _percent(sample.utilization), _number(sample.temperature_c, "C")
    power = _number(sample.power_w, "W")
    if width < NARROW:
        return f"{number:<4}{load:>6}{heat:>7}{power:>8}"
    reasons = ", ".join(each for each in sample.clock_reasons.split(";") if each != "idle")
    clock = _number(sample.sm_clock_mhz, "MHz")
    return f"{number:<4}{load:>6}{_memory(sample):>15}{heat:>7}{power:>8}{clock:>10}  {reasons}"


def _machine_line(sample: Sample, width: int) -> str:
    load = f"{'CPU':<4}{_percent(sample.utilization):>6}"
    own = _percent(sample.own_cpu_share)
    if width < NARROW:
        return f"{load}  own {own}"
    own_memory = UNKNOWN if sample.own_memory_bytes is None else _gib(sample.own_memory_bytes)
    return f"{load}{_memory(sample):>15}   own processes: {own}, {own_memory} GiB"


def _memory(sample: Sample) -> str:
    used, total = sample.memory_used_bytes, sample.memory_total_bytes
    return UNKNOWN if used is None or total is None else f"{_gib(used)}/{_gib(total)}"


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / 2**30:.1f}"


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share * 100:.0f} %"


def _number(value: float | None, unit: str) -> str:
    return UNKNOWN if value is None else f"{value:.0f} {unit}"


def _cut(line: str, width: int) -> str:
    line = plain(line)
    if len(line) <= width:
        return line
    return line[: width - len(ELLIPSIS)] + ELLIPSIS if width > len(ELLIPSIS) else line[:width]
