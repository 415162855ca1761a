"""How numbers look on a screen. An unknown value is a hyphen, never 0.

Nothing here is read back by a program: CSV and JSON carry the unrounded values.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
from pathlib import Path

UNKNOWN = "-"

QUOTED_CHARACTERS = 500
"""How much of another program's message an error of ours quotes."""


_NOT_UTF8 = re.compile(r"[^\s:;,()'\"]*[\udc80-\udcff][^\s:;,()'\"]*")
"""A word with bytes of a file name that are not UTF-8, as Python keeps them."""


def shell_path(path: Path) -> str:
    """A path as a word of a shell command: quoted, and never an option."""
    text = str(path)
    text = f"./{text}" if text.startswith("-") else text
    return shlex.quote(text) if text.isprintable() else _escaped(text)


def shown_path(path: Path | str) -> str:
    """A path in a message: as it is, or else as a shell takes it: `$'caf\\xe9.jpg'`."""
    text = str(path)
    return text if text.isprintable() else _escaped(text)


def _escaped(text: str) -> str:
    """A word for the shell in which every byte that cannot be shown is escaped."""
    return "$'" + "".join(map(_escape, text)) + "'"


def _escape(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    if "\udc80" <= character <= "\udcff":  # a byte, as Python keeps it
        return f"\\x{ord(character) - 0xDC00:02x}"
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="replace"))


def in_utf8(name: str) -> str:
    """A file name as text that is the same in every locale; other bytes are `\\xe9`."""
    return os.fsencode(name).decode("utf-8", errors="backslashreplace")


def shorten(text: str, limit: int = QUOTED_CHARACTERS) -> str:
    """A text, or its beginning and an ellipsis."""
    return text if len(text) <= limit else f"{text[:limit]}..."


def signal_name(number: int) -> str:
    """The name of a signal: `SIGKILL`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def message_of(error: BaseException) -> str:
    """The message of an error; empty if even that fails."""
    try:
        return str(error)
    except Exception:
        return ""


def gist(message: str) -> str:
    """The first line of a message, without its full stop, and shortened."""
    return shorten(message.strip().partition("\n")[0].rstrip("."))


def format_rate(samples_per_s: float | None) -> str:
    """Samples per second with four significant digits, without an exponent: `1234`, `12.34`."""
    return UNKNOWN if samples_per_s is None else _significant(samples_per_s, 4)


def format_cost(cost: float | None) -> str:
    """A cost with four significant digits, in the currency of the price: `1.234`."""
    return UNKNOWN if cost is None else _significant(cost, 4)


def format_ratio(ratio: float | None) -> str:
    """A ratio of two throughputs with three decimals: `1.234`."""
    return UNKNOWN if ratio is None else f"{ratio:.3f}"


def format_loss(loss: float | None) -> str:
    """A loss with four decimals: `0.1234`."""
    return UNKNOWN if loss is None else f"{loss:.4f}"


def format_interval(interval: tuple[float, float] | None) -> str:
    """A confidence interval of a ratio: `1.201..1.267`."""
    if interval is None:
        return UNKNOWN
    low, high = interval
    return f"{low:.3f}..{high:.3f}"


def format_percent(share: float | None) -> str:
    """A share of one as a percentage: 0.123 is `12.3 %`."""
    return UNKNOWN if share is None else f"{share * 100:.1f} %"


def format_confidence(confidence: float) -> str:
    """A confidence as a percentage with up to four digits: `95 %`, `97.5 %`, `98.33 %`."""
    return f"{confidence * 100:.4g} %"


def format_milliseconds(seconds: float | None) -> str:
    """A duration given in seconds, shown in milliseconds with four significant digits."""
    return UNKNOWN if seconds is None else _significant(seconds * 1e3, 4)


def format_seconds(seconds: float | None) -> str:
    """Seconds to be compared, with four significant digits: `12.34`, `3742`."""
    return UNKNOWN if seconds is None else _significant(seconds, 4)


def format_duration(seconds: float | None) -> str:
    """A duration for people: `45 s`, `2 min 05 s`, `1 h 02 min`."""
    if seconds is None:
        return UNKNOWN
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_gibibytes(num_bytes: int | None) -> str:
    """Bytes in GiB (1024-based) with two decimals: `12.34`."""
    return UNKNOWN if num_bytes is None else f"{num_bytes / 2**30:.2f}"


def format_size(num_bytes: int | None) -> str:
    """Bytes in the 1024-based MB and GB of df and docker: `64 MB`, `23.5 GB`."""
    if num_bytes is None:
        return "unknown size"
    if num_bytes < 2**20:
        return f"{num_bytes} bytes"
    if round(num_bytes / 2**20) < 1024:
        return f"{num_bytes / 2**20:.0f} MB"
    return f"{num_bytes / 2**30:.1f} GB"


def format_binary(num_bytes: int | None) -> str:
    """Bytes of a buffer in 1024-based units: `4 KiB`, `7.816 MiB`."""
    if num_bytes is None:
        return UNKNOWN
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = min(max(num_bytes.bit_length() - 1, 0) // 10, len(units) - 1)
    value = num_bytes / 1024**power
    return f"{value:.0f} {units[power]}" if value.is_integer() else f"{value:.4g} {units[power]}"


def format_microseconds(seconds: float | None) -> str:
    """A duration given in seconds, shown in microseconds with four significant digits."""
    return UNKNOWN if seconds is None else _significant(seconds * 1e6, 4)


def format_bandwidth(bytes_per_s: float | None) -> str:
    """Bytes per second as GB/s (1000-based) with four significant digits: `1.234`."""
    return UNKNOWN if bytes_per_s is None else _significant(bytes_per_s / 1e9, 4)


def format_count(count: int, noun: str) -> str:
    """A count with its noun in the right number: `1 run`, `2 runs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def plain(text: str) -> str:
    """Text from a file or a user on one line, without characters that control a terminal.

    Names of files that are not UTF-8 are written as a shell takes them.
    """
    text = _NOT_UTF8.sub(lambda word: _escaped(word.group()), text)
    return "".join(character if character.isprintable() else "?" for character in text)


def _significant(value: float, digits: int) -> str:
    # The exponent of the rounded value: 9.9996 has 10.00 and not 10.000.
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return f"{value:.{max(0, digits - 1 - exponent)}f}"
