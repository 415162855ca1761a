"""A checkpoint that is damaged, or of another program: refused in one line, and never run."""

from __future__ import annotations

import os
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mgpubench.errors import RequestRefused
from mgpubench.training.checkpoint import FORMAT, load, save
from tests.checkpoints import about, content, same_content, small_content, trained

Damage = Callable[[Path], None]
NAME = "epoch-0002.pt"


class Code:
    """An object whose pickle runs a command."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("ran",)


def torch_file(document: object, **options: Any) -> Damage:
    """Replaces a file by what torch makes of an object."""
    return lambda path: torch.save(document, path, **options)


def remove(path: Path) -> None:
    path.unlink()


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def folder_with_others(path: Path) -> None:
    folder(path)
    (path / "epoch-0007.pt").touch()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flipped(path: Path) -> None:
    """One bit in a tensor."""
    with zipfile.ZipFile(path) as archive:
        entry = next(each for each in archive.infolist() if each.filename.endswith("data/0"))
    place = path.read_bytes().index(entry.filename.encode()) + 200
    flip(path, place)


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x10
    path.write_bytes(data)


def plain_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(Code()))


def compressed(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        data = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, entry in data.items():
            archive.writestr(name, entry)


def other_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "<xml/>")


def document(**changes: Any) -> dict[str, Any]:
    """What a checkpoint holds, with changes."""
    values = {
        **{"format": FORMAT, "version": 1, "about": about().to_json()},
        **{"model": {}, "optimizer": {}, "scaler": None},
    }
    return {**values, **changes}


FAULTS: dict[str, tuple[Damage, str, str]] = {
    "missing": (remove, "FILE does not exist", "folder checkpoints"),
    "a folder": (folder, "FILE is a folder, and not a checkpoint", "folder checkpoints"),
    "a folder of checkpoints": (
        *(folder_with_others, "FILE is a folder, and not a checkpoint"),
        "such as .*/epoch-0007.pt",
    ),
    "a pipe": (pipe, "FILE is not a file", "folder checkpoints"),
    "empty": (empty, "FILE is empty", "such as .*/epoch-0001.pt"),
    "cut in half": (half, "FILE is damaged: it is cut off, or", "such as .*/epoch-0001.pt"),
    "one bit flipped": (
        *(flipped, "FILE is damaged: .*/data/0 does not match its checksum"),
        "such as .*/epoch-0001.pt",
    ),
    "compressed": (compressed, "FILE is damaged: an entry is compressed", "such as"),
    "code": (
        *(torch_file(document(model=Code())), r"FILE is refused: it holds posix.mkdir, which"),
        "state_dict",
    ),
    "code alone": (plain_pickle, "FILE is not a checkpoint: it is not in torch's zip format", ""),
    "a whole module": (
        torch_file(nn.Linear(2, 2)),
        "FILE is refused: it holds torch.nn.modules.linear.Linear, which could run code",
        "state_dict",
    ),
    "a newer version": (
        torch_file(document(version=2)),
        "FILE is a checkpoint of version 2, and this mgpubench reads version 1",
        "Use the mgpubench that wrote it, or a newer one",
    ),
    "no version": (torch_file(document(version=None)), "FILE is a checkpoint of version None", ""),
    "a plain state dict": (
        torch_file(nn.Linear(2, 2).state_dict()),
        "FILE holds only weights, and is not a checkpoint of mgpubench",
        "--pretrained .*/epoch-0002.pt",
    ),
    "another program's": (
        torch_file({"epoch": 3, "state_dict": nn.Linear(2, 2).state_dict()}),
        "FILE is not a checkpoint of mgpubench",
        "folder checkpoints",
    ),
    "a tensor": (torch_file(torch.ones(3)), "FILE is not a checkpoint of mgpubench", ""),
    "the old format": (
        torch_file(document(), _use_new_zipfile_serialization=False),
        "FILE is not a checkpoint: it is not in torch's zip format",
        "",
    ),
    "another zip file": (other_zip, "FILE is damaged or not a checkpoint: torch cannot", ""),
    "about damaged": (
        *(torch_file(document(about="{")), "FILE is damaged: its content is not as mgpubench"),
        "such as",
    ),
    "about not text": (
        torch_file(document(about=7)),
        "FILE is damaged: .*about is of type int",
        "",
    ),
    "model not a dict": (torch_file(document(model=[])), "FILE is damaged: .*model is of", ""),
    "scaler not a dict": (torch_file(document(scaler=1)), "FILE is damaged: .*scaler is of", ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_it_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    damage, says, hint = FAULTS[fault]
    monkeypatch.chdir(tmp_path)
    model, optimizer = trained()
    for name in ("epoch-0001.pt", NAME):
        save(tmp_path / name, content(model, optimizer))
    path = tmp_path / NAME
    damage(path)
    with pytest.raises(RequestRefused) as caught:
        load(path)
    error = caught.value
    assert error.exit_code == 2
    assert re.match(says.replace("FILE", re.escape(str(path))), error.message)
    assert error.hint
    assert re.search(hint, error.hint)
    assert "\n" not in error.message + error.hint
    assert not (tmp_path / "ran").exists()


def test_without_another_checkpoint_the_hint_names_none(tmp_path: Path) -> None:
    save(tmp_path / NAME, small_content())
    half(tmp_path / NAME)
    with pytest.raises(RequestRefused) as caught:
        load(tmp_path / NAME)
    assert caught.value.hint == "Copy it again from where it came from, or use another one."


def test_a_file_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / NAME, small_content())

    def refuse(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(RequestRefused, match=f"{NAME} cannot be read: Permission denied"):
        load(tmp_path / NAME)
    monkeypatch.undo()
    with pytest.raises(RequestRefused, match="cannot be read: File name too long"):
        load(tmp_path / ("x" * 300))


def test_no_flipped_byte_is_ever_loaded_as_another_value(tmp_path: Path) -> None:
    """A byte that no program reads, such as padding, does not matter."""
    path = tmp_path / NAME
    saved = small_content(3)
    save(path, saved)
    whole = path.read_bytes()
    refused = 0
    places = range(0, len(whole), 5)
    for place in places:
        flip(path, place)
        try:
            assert same_content(load(path), saved), place
        except RequestRefused:
            refused += 1
        path.write_bytes(whole)
    assert refused > len(places) / 3


def test_no_part_of_a_checkpoint_is_ever_loaded(tmp_path: Path) -> None:
    path = tmp_path / NAME
    save(path, small_content())
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(RequestRefused):
            load(path)
