"""The page: everything escaped, nothing loaded, readable without script, and small."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from html import escape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mgpubench.report.html import make, page
from mgpubench.report.html.pictures import NO_MATPLOTLIB, NOTHING_TO_DRAW
from mgpubench.results.merge import Reading
from mgpubench.results.schema import RunRecord
from tests.conftest import make_run_record as run
from tests.unit.report.test_sentences import DDP, THREE_MODES, rounds

HOSTILE = (
    "</script><script>alert(1)</script><img src=//x.example/a onerror=alert(2)>"
    "</title></style>\"'><!--${7*7}{{7*7}}\x1b[31m\u202e\x00 &lt;"
)
"""A name that tries to end every element and text that it may be in."""

VOID = {"meta", "link", "br", "input"}
OPTIONAL_END = {"td"}


class Parsed(HTMLParser):
    """The elements, their attributes and the texts of a page. Every element must be closed."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID | OPTIONAL_END:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in OPTIONAL_END:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.scripts if self._open[-1:] == ["script"] else self.texts).append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def html_of(
    records: Sequence[RunRecord],
    warnings: Sequence[str] = (),
    folders: dict[str, Path] | None = None,
    paths: Sequence[Path] = (Path("results"),),
) -> str:
    reading = Reading(list(records), list(warnings), folders or {})
    return page.render(make.make_page(reading, None, 0.02, paths))


@pytest.fixture(scope="module")
def html() -> str:
    """The page about three modes, one run of which has failed, with a finding."""
    failed = run("ddp", None, round=6, status="failed", error="rank 1 was killed")
    return html_of([replace(r, findings="stalls") for r in THREE_MODES] + [failed])


def attributes_of(parsed: Parsed) -> set[str]:
    return {name for _, attributes in parsed.elements for name in attributes}


def text_columns() -> list[str]:
    """The columns that may hold any text."""
    known = {"status", "mode", "effective_mode", "peak_memory_bytes"}
    return [f.name for f in fields(RunRecord) if f.type == "str" and f.name not in known]


def hostile_document() -> dict[str, Any]:
    return {
        "session_id": HOSTILE,
        "argv": ["run", HOSTILE],
        "mgpubench_commit": HOSTILE,
        "system": {"cpu_model": HOSTILE, "os": HOSTILE, "governor": HOSTILE, "cores": HOSTILE},
        "machine": {
            "gpus": [{"name": HOSTILE, "memory_bytes": HOSTILE}],
            "cuda_visible_devices": HOSTILE,
            "omp_num_threads": HOSTILE,
        },
        "torch": {"cudnn_version": HOSTILE},
        "environment": {HOSTILE: HOSTILE},
    }


def test_hostile_text_in_every_place_stays_text(tmp_path: Path) -> None:
    (tmp_path / "session.json").write_text(json.dumps(hostile_document()))
    bad = dict.fromkeys(text_columns(), HOSTILE)
    columns = {name: value for name, value in bad.items() if name != "scaling"}
    records = [
        replace(record, **{**columns, "variant": f"{HOSTILE}{record.mode}"})
        for record in [*THREE_MODES, run("ddp", None, round=9, status="failed")]
    ]
    second = [replace(record, model="other", session_id="s2") for record in THREE_MODES]
    parsed = Parsed(
        html_of(
            [*records, *second], [HOSTILE], {HOSTILE: tmp_path}, [Path("x") / HOSTILE.strip("\0")]
        )
    )
    plain = Parsed(html_of(THREE_MODES))
    assert {tag for tag, _ in parsed.elements} <= {tag for tag, _ in plain.elements} | {
        *("article", "strong", "ul", "li", "h3")
    }
    assert attributes_of(parsed) <= attributes_of(plain) | {"role"}
    assert not [name for name in attributes_of(parsed) if name.startswith("on")]
    assert len(parsed.scripts) == 1
    shown = "".join(parsed.texts)
    assert "</script><script>alert(1)</script>" in shown
    assert "${7*7}{{7*7}}?[31m??" in shown
    assert not {"\x1b", "\u202e", "\x00"} & set(shown)


def test_the_policy_allows_this_script_and_no_network(html: str) -> None:
    parsed = Parsed(html)
    (policy,) = (m["content"] for m in parsed.all("meta") if "http-equiv" in m)
    digest = base64.b64encode(hashlib.sha256(parsed.scripts[0].encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    # Before anything that it is about.
    assert html.index("Content-Security-Policy") < html.index("<style>")


def test_nothing_is_loaded(html: str) -> None:
    parsed = Parsed(html)
    assert not [a for _, a in parsed.elements if {"src", "srcset", "action"} & set(a)]
    links = [a[name] for _, a in parsed.elements for name in ("href", "xlink:href") if name in a]
    ids = [a["id"] for _, a in parsed.elements if "id" in a]
    assert all(link == "data:," or (link or "").removeprefix("#") in ids for link in links)
    assert not re.findall(r"url\((?!#)", html)
    assert "@import" not in html


def test_the_structure_can_be_followed_without_seeing_it(html: str) -> None:
    parsed = Parsed(html)
    ids = [a["id"] for _, a in parsed.elements if "id" in a]
    assert len(ids) == len(set(ids))
    levels = [int(tag[1]) for tag, _ in parsed.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert all(a.get("scope") in ("col", "row") for a in parsed.all("th"))
    named = [a.get("aria-labelledby") or "" for _, a in parsed.elements]
    assert set(" ".join(named).split()) <= set(ids)
    # What scrolls can be reached with the keyboard.
    scrolling = [a for a in parsed.all("div") if "scroll" in (a.get("class") or "")]
    assert scrolling
    assert all(a["tabindex"] == "0" and a["role"] == "region" for a in scrolling)
    (field,) = parsed.all("input")
    assert [a["for"] for a in parsed.all("label")] == [field["id"]]
    assert [a["lang"] for a in parsed.all("html")] == ["en"]


def test_the_answers_to_the_five_questions_come_first(html: str) -> None:
    top = html.partition('<section id="comparison"')[0]
    names = re.findall(r"<dt>(.*?)</dt>", top)
    assert names == ["Faster", "Sure?", "Doubts", "Compared", "On what", "With", "Repeat it"]
    assert "ddp. It trains 26.7 % more samples per second than dp" in top
    assert "Yes, for this session" in top


def test_the_sentences_and_cells_of_compare_are_there(html: str) -> None:
    texts = "".join(Parsed(html).texts)
    for words in (
        "resnet50, synthetic data, 224 px, tf32, batch 64 per device, NVIDIA X",
        "ddp against dp on 2 devices: 1.267x (95 % CI 1.262..1.273, 5 paired rounds of one "
        "session): faster",
        "the verdicts against single are all right at once in 95 % of tables",
    ):
        assert words in texts
    assert '<span class="verdict faster">faster</span>' in html
    assert "rank 1 was killed" in texts


def test_without_script_all_runs_can_be_read(html: str) -> None:
    body = html.partition('<table id="runs-table">')[2].partition("</table>")[0]
    assert body.count("<tr>") == 1 + len(THREE_MODES) + 1
    assert "hidden" not in body
    assert '<div id="runs-tools" hidden>' in html  # what would do nothing


def test_what_could_not_be_read_is_on_the_page() -> None:
    lines = [f"runs.csv: line {number}: skipped" for number in range(60)]
    html = html_of(THREE_MODES, lines)
    assert "runs.csv: line 49: skipped" in html
    assert "runs.csv: line 50: skipped" not in html
    assert "and 10 more" in html


def test_two_kinds_of_work_have_two_tables_and_two_answers() -> None:
    other = [replace(record, model="vgg16") for record in THREE_MODES]
    html = html_of([*THREE_MODES, *other])
    common = "synthetic data, 224 px, tf32, batch 64 per device, NVIDIA X"
    assert f"<h1>{common}, 2 kinds of work</h1>" in html
    assert html.count('<p class="sentence">') == 2
    assert "The 2 tables show different work" in html


def test_many_answers_are_counted() -> None:
    variants = [
        *rounds("ddp", DDP, variant="plain", variant_number=1),
        *(r for i in range(2, 11) for r in rounds("ddp", DDP, variant=f"v{i}", variant_number=i)),
    ]
    html = html_of(variants)
    assert html.count('<p class="sentence">') == make.MAX_ANSWERS
    assert "3 more are below the tables." in html


def test_without_findings_it_says_so() -> None:
    html = html_of(THREE_MODES)
    assert "Nothing was found that makes a figure doubtful." in html
    assert "Doubts" not in html


def test_every_picture_has_a_title_and_a_description(html: str) -> None:
    pytest.importorskip("matplotlib")
    pictures = re.findall("<svg.*?</svg>", html, re.DOTALL)
    assert len(pictures) >= 2
    for picture in pictures:
        (labels,) = re.findall(r'^<svg[^>]* role="img" aria-labelledby="(\S+ \S+)"', picture)
        texts = [re.findall(f'id="{name}">([^<]+)<', picture) for name in labels.split()]
        assert [len(found) for found in texts] == [1, 1]
    assert "ddp on 2 devices" in pictures[0]


def test_without_matplotlib_a_sentence_says_what_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    html = html_of(THREE_MODES)
    assert "<svg" not in html
    assert f"<p>{escape(NO_MATPLOTLIB)}</p>" in html
    assert "pip install" in NO_MATPLOTLIB


def test_one_run_has_nothing_to_draw() -> None:
    pytest.importorskip("matplotlib")
    assert NOTHING_TO_DRAW in html_of([run("dp", None, status="failed"), run("dp", 100.0)])


def many_runs(count: int) -> list[RunRecord]:
    return [
        run(
            "ddp" if number % 2 else "dp",
            1000.0 + number % 97,
            run_id=f"s1-{number}",
            round=number // 2,
            position=number,
            started_at="2026-11-30T04:29:24+00:00",
            step_time_median_s=0.1,
            step_time_p95_s=0.11,
            data_wait_s=0.1,
            window_s=10.0,
            others_cpu_share=0.01,
            peak_memory_bytes="8000000000;8000000000",
            findings="stalls;busy-machine;loader-bound",
        )
        for number in range(1, count + 1)
    ]


def test_a_page_of_100_runs_is_below_1_mb_and_one_of_10000_below_5_mb() -> None:
    assert len(html_of(many_runs(100)).encode()) < 2**20
    html = html_of(many_runs(10_050))
    assert len(html.encode()) < 5 * 2**20
    assert "These are the newest 10000 runs. The 50 before them are in the files." in html


def test_a_report_is_known_by_its_beginning(html: str) -> None:
    assert page.is_report(html[:4096])
    assert not page.is_report("<!doctype html><title>mgpubench</title>")


# Colours.

STYLE = (page.FOLDER / "page.css").read_text(encoding="utf-8")


def colours(scheme: str) -> dict[str, str]:
    """The colours of a scheme by their names. The dark one replaces the light one."""
    light, _, rest = STYLE.partition("@media screen and (prefers-color-scheme: dark)")
    dark = rest.partition("* { box-sizing")[0]
    found = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", light.partition("* {")[0]))
    return (
        found if scheme == "light" else {**found, **dict(re.findall(r"--([a-z-]+): (#\w+)", dark))}
    )


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted(map(luminance, (one, other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_black_on_white_has_the_contrast_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


VERDICTS = ("faster", "slower", "equivalent", "undecided", "none")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("text", "back"),
    [
        *((text, back) for text in ("text", "quiet", "accent") for back in ("page", "raised")),
        *((verdict, f"{verdict}-back") for verdict in VERDICTS),
        *(("text", f"{verdict}-back") for verdict in VERDICTS),
    ],
)
def test_text_has_the_contrast_of_wcag_aa(scheme: str, text: str, back: str) -> None:
    palette = colours(scheme)
    assert contrast(palette[text], palette[back]) >= 4.5


def test_both_schemes_have_all_colours() -> None:
    assert set(colours("light")) == set(colours("dark"))
    assert colours("light")["page"] != colours("dark")["page"]
    used = set(re.findall(r"var\(--([a-z-]+)\)", STYLE))
    assert used <= set(colours("light"))
