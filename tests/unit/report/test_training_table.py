"""What is said about trainings: the epochs side by side, the figures, and the sentences."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from mgpubench.analysis.row import parse_baseline
from mgpubench.analysis.trainings import compare_trainings
from mgpubench.report.sections import Section
from mgpubench.report.tables import print_sections, sections_markdown
from mgpubench.report.training_export import trainings_to_csv, trainings_to_json
from mgpubench.report.training_sentences import COMMON_EPOCHS, ONE_OBSERVATION
from mgpubench.report.training_table import describe_trainings
from mgpubench.results.read_trainings import Training
from mgpubench.results.training import EpochRecord
from mgpubench.results.training_facts import read_facts
from tests.trainings import epoch, epochs, in_mode, write_training


@pytest.fixture
def make(tmp_path: Path) -> Any:
    """Makes a training from its epochs."""
    facts = read_facts(write_training(tmp_path, [], split=0.8))

    def training(name: str, trained: list[EpochRecord], lost: int = 0, **changes: Any) -> Training:
        return Training(
            folder=tmp_path / name,
            facts=replace(facts, session_id=name, **changes),
            epochs=tuple(trained),
            lost_epochs=lost,
        )

    return training


@pytest.fixture
def two(make: Any) -> list[Training]:
    """single, and ddp twice as fast."""
    return [make("s", epochs(4, 2, 2)), make("b", in_mode("ddp", 2, 2, 1, 1))]


def describe(
    *trainings: Training, baseline: str = "", to_top1: float | None = None
) -> list[Section]:
    chosen = parse_baseline(baseline) if baseline else None
    return describe_trainings(compare_trainings(trainings, chosen, to_top1), to_top1)


def said(*trainings: Training, baseline: str = "", to_top1: float | None = None) -> list[str]:
    """The sentences about the last group."""
    return describe(*trainings, baseline=baseline, to_top1=to_top1)[-1].sentences


def cells(section: Section) -> dict[str, list[str]]:
    return {column.header.replace("\n", " "): column.cells for column in section.columns}


def test_the_table_of_two_trainings(two: list[Training]) -> None:
    console = Console(file=io.StringIO(), width=200)
    print_sections(describe(*two, to_top1=0.75), console)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert lines == [
        "mlp, imagefolder:photos data, 32 px, fp32, lr 0.01, batch 8 global, NVIDIA X",
        "       single x1  single x1  single x1     ddp x2  ddp x2  ddp x2",
        "epoch  samples/s       loss      top-1  samples/s    loss   top-1",
        "─────────────────────────────────────────────────────────────────",
        "    1      20.00     1.0000     50.0 %      40.00  1.0000  50.0 %",
        "    2      40.00     0.5000     75.0 %      80.00  0.5000  75.0 %",
        "    3      40.00     0.3333     70.0 %      80.00  0.3333  70.0 %",
        "",
        "whole trainings",
        "                         seconds of             ratio to    best     in  seconds to",
        "mode    devices  epochs    training  samples/s    single   top-1  epoch  75 % top-1  "
        "training",
        "─" * 93,
        "single        1       3       8.000      30.00  baseline  75.0 %      2       6.000  s",
        "ddp           2       3       4.000      60.00     2.000  75.0 %      2       3.000  b",
        "seconds to 75 % top-1: time of training up to the end of the first epoch that reached it, "
        "without evaluation and checkpoints",
        ONE_OBSERVATION,
    ]  # fmt: skip


def test_markdown_has_the_same(two: list[Training]) -> None:
    text = sections_markdown(describe(*two))
    assert "| 2 | 40.00 | 0.5000 | 75.0 % | 80.00 | 0.5000 | 75.0 % |" in text
    assert "| ddp | 2 | 3 | 4.000 | 60.00 | 2.000 | 75.0 % | 2 | b |" in text
    assert text.endswith(f"- {ONE_OBSERVATION}\n")


def test_an_epoch_that_a_training_does_not_have_is_unknown(make: Any) -> None:
    long = make("a", epochs(4, 2, 2))
    short = make("b", in_mode("ddp", 2, 2, top1=(0.5,)), epochs=5)
    table, whole = describe(long, short, to_top1=0.75)
    assert cells(table)["ddp x2 loss"] == ["1.0000", "-", "-"]
    assert cells(whole)["epochs"] == ["3", "1 of 5"]
    assert cells(whole)["seconds to 75 % top-1"] == ["6.000", "-"]
    assert COMMON_EPOCHS in whole.sentences


def test_trainings_that_were_never_evaluated_have_no_columns_of_accuracy(make: Any) -> None:
    trained = [epoch(1), epoch(2)]
    table, whole = describe(make("a", trained), to_top1=0.5)
    assert list(cells(table)) == ["epoch", "single x1 samples/s", "single x1 loss"]
    assert "best top-1" not in cells(whole)
    assert whole.sentences == ["no accuracy is known: train with --split or --eval-data"]


def test_trainings_in_one_mode_are_told_apart_by_the_end_of_their_ids(make: Any) -> None:
    names = ("2026-aaa", "2026-bbb")
    table, _ = describe(*(make(name, epochs(4, 2, 2)) for name in names))
    assert "single x1 aaa loss" in cells(table)
    assert "single x1 bbb loss" in cells(table)


def test_what_really_ran_and_options_stand_beside_the_mode(make: Any) -> None:
    trained = in_mode("dp", 2, 4, 2, 2, device_type="cpu", device_names="2x CPU Y")
    trained = [replace(each, effective_mode="cpu-replicas") for each in trained]
    _, whole = describe(make("a", trained, options="cudnn_benchmark=true;log_every=1"))
    assert cells(whole)["mode"] == ["dp (cpu-replicas) cudnn_benchmark=true log_every=1"]
    assert whole.sentences == ["CPU rows are smoke tests of the tool, not a forecast for GPUs."]


def test_a_training_that_went_on_elsewhere(make: Any) -> None:
    changed = make("c", [*in_mode("dp", 2, 4, 2, 2)[:2], *in_mode("ddp", 4, 4, 2, 2)[2:]], lost=1)
    table, whole = describe(changed)
    assert "dp x2 then ddp x4 loss" in cells(table)
    assert (cells(whole)["mode"], cells(whole)["devices"]) == (["dp then ddp"], ["2 then 4"])
    assert whole.sentences[1:] == [
        "dp x2 then ddp x4 (c) went on in another mode or on other devices, so it has no ratio",
        "dp x2 then ddp x4 (c): 1 epoch had no checkpoint when it was interrupted; they were "
        "trained again, and the first time is in no figure",
    ]


def test_why_there_is_no_ratio(make: Any) -> None:
    dp, ddp = make("dp", in_mode("dp", 2, 4, 2, 2)), make("ddp4", in_mode("ddp", 4, 4, 2, 2))
    assert said(ddp) == ["nothing to compare with: there is no training of single or dp here"]
    assert said(make("f", in_mode("fsdp", 2, 4, 2, 2))) == [
        "nothing to compare with: there is no training of single, dp or ddp here"
    ]
    assert said(ddp, baseline="single") == [
        "nothing to compare with: there is no training of single here"
    ]
    assert said(dp, ddp) == ["no dp on as many devices to compare with: ddp x4 (ddp4)"]
    assert said(dp, make("dp-b", in_mode("dp", 2, 4, 2, 2)))[0] == (
        "several trainings are dp: name the one to divide by with --baseline, such as --baseline dp"
    )


def test_what_makes_a_comparison_doubtful(make: Any) -> None:
    gap = make("a", [epoch(1, loader_workers=4), epoch(3, eval_samples=10, top1=0.5)])
    ddp = make("b", in_mode("ddp", 2, 4, 2, 2, loader_workers=8))
    assert said(gap, ddp)[-3:] == [
        "single x1 (a) lacks epochs whose rows cannot be read, so its seconds are not those of the "
        "whole training",
        "different numbers of loader workers: single x1 4, ddp x2 8; --workers-per-gpu sets them "
        "for each device",
        "accuracies are over different numbers of images: 10, 20",
    ]


def test_a_training_on_several_machines_is_told_from_one_on_one(make: Any) -> None:
    alone = make("a", in_mode("ddp", 2, 4, 2, 2))
    together = make("b", in_mode("ddp", 2, 4, 2, 2, num_nodes=2))
    assert said(alone, together)[-1] == "numbers of machines: ddp x2 (a) 1, ddp x2 (b) 2"
    assert not any("machines" in sentence for sentence in said(alone))


def test_a_training_from_a_checkpoint_has_no_time_to_an_accuracy(make: Any) -> None:
    trained = [replace(each, epoch=each.epoch + 2) for each in epochs(4, 2, 2)]
    training = make("a", trained, weights="checkpoint x/epoch-0002.pt")
    sentences = said(training, to_top1=0.5)
    assert sentences[1] == (
        "single x1 (a) began with the checkpoint of another training, so its time to an accuracy "
        "is unknown"
    )
    assert not any("lacks epochs" in sentence for sentence in sentences)


def test_groups_of_different_work_say_in_what_they_differ(make: Any) -> None:
    sections = describe(make("a", epochs(4, 2, 2)), make("b", epochs(4, 2, 2), seed=3))
    assert len(sections) == 4
    assert sections[0].title.endswith(", NVIDIA X, seed 0")
    assert sections[-1].sentences[-1] == (
        "The 2 groups show different work, and are not divided by each other: seed (0 / 3)"
    )


def test_text_from_files_cannot_control_a_terminal(make: Any) -> None:
    training = make("a\x1b[31m", epochs(4, 2, 2), model="net\x1b[2J")
    for section in describe(training, baseline="x\x1b", to_top1=0.5):
        texts = [section.title, *section.sentences]
        texts += [text for column in section.columns for text in (column.header, *column.cells)]
        assert not any("\x1b" in text for text in texts)


def test_json_has_an_object_for_each_training(two: list[Training]) -> None:
    rows = compare_trainings(two, None, 0.75)
    single, ddp = json.loads(trainings_to_json(rows, 0.75))
    assert single["versus_baseline"] is None
    assert ddp["versus_baseline"] == {
        "baseline": "single",
        "training": "s",
        "ratio": 2.0,
        "epochs": 3,
    }
    assert single["group"] == ddp["group"]
    assert (ddp["group"]["lr"], ddp["group"]["clip_grad_norm"]) == (0.01, None)
    assert (ddp["training"], ddp["mode"], ddp["num_devices"]) == ("b", "ddp", 2)
    assert (ddp["train_s"], ddp["throughput_samples_per_s"]) == (4.0, 60.0)
    assert (ddp["best_top1"], ddp["best_epoch"]) == (0.75, 2)
    assert (ddp["to_top1"], ddp["seconds_to_accuracy"]) == (0.75, 3.0)
    assert [(each["epoch"], each["top1"], each["top5"]) for each in ddp["epochs"]] == [
        (1, 0.5, None),
        (2, 0.75, None),
        (3, 0.7, None),
    ]


def test_csv_has_a_row_for_each_epoch(two: list[Training]) -> None:
    rows = compare_trainings(two, None, None)
    table = list(csv.DictReader(io.StringIO(trainings_to_csv(rows, None))))
    assert [(row["training"], row["epoch"]) for row in table[2:4]] == [
        ("s", "3"),
        ("b", "1"),
    ]
    last = table[-1]
    assert (last["mode"], last["train_s"], last["training_train_s"]) == ("ddp", "1.0", "4.0")
    assert (last["versus_ratio"], last["to_top1"], last["top5"]) == ("2.0", "", "")
    assert (last["group_model"], last["best_top1"]) == ("mlp", "0.75")


def test_of_a_training_that_went_on_elsewhere_only_its_epochs_have_a_mode(make: Any) -> None:
    changed = make("c", [*in_mode("dp", 2, 4, 2, 2)[:2], *in_mode("ddp", 2, 4, 2, 2)[2:]])
    (training,) = json.loads(trainings_to_json(compare_trainings([changed], None, None), None))
    assert (training["mode"], training["effective_mode"], training["num_devices"]) == (None,) * 3
    assert [each["mode"] for each in training["epochs"]] == ["dp", "dp", "ddp"]
