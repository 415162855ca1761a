"""How fast images get from files to the model, against the tutorial's pipeline."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image
from sides import compare_rates, cpu_config, interval_of, only_part, report, step_of
from torch import nn
from torch.utils.data import DataLoader, default_collate
from torchvision import datasets, transforms
from torchvision.io import decode_image, read_file

from mgpubench.config.recipe import measured_recipe
from mgpubench.config.request import Request
from mgpubench.config.run_config import RunConfig
from mgpubench.machine import host
from mgpubench.training.data.folder import FolderDataset, collate
from mgpubench.training.data.listing import list_images
from mgpubench.training.data.loader import open_feed
from mgpubench.training.models.by_name import make_module
from mgpubench.training.torch_settings import set_up_process

RECIPE = measured_recipe("sgd")
IMAGE_SIZE = 224
BATCH = 20
MODEL = "mlp"
"""So light that the loaders set the pace on a CPU."""
TUTORIAL = transforms.Compose(
    [
        transforms.Resize(256),
        transforms.CenterCrop(IMAGE_SIZE),
        transforms.ToTensor(),
        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ]
)


def pipeline() -> bool:
    """One worker's images/s from JPEG files to a batch, against the tutorial and pure decoding."""
    with jpegs(2 * BATCH) as root, one_thread():
        files = sorted(map(str, root.rglob("*.jpg")))
        dataset = FolderDataset([(file, 0) for file in files], IMAGE_SIZE)

        def ours() -> float:
            return rate(
                len(files),
                lambda: [collate([dataset[0, i] for i in part]) for part in parts(files)],
            )

        def tutorial() -> float:
            return rate(
                len(files),
                lambda: [
                    default_collate([(read_tutorial(files[i]), 0) for i in part])
                    for part in parts(files)
                ],
            )

        def decode() -> float:
            return rate(len(files), lambda: [decode_image(read_file(file)) for file in files])

        against = compare_rates(ours, tutorial, 9)
        of_decode = compare_rates(ours, decode, 9)
    figure = (
        f"{against.ratio:.2f} x the tutorial's images/s ({interval_of(against)}), "
        f"{of_decode.ratio:.2f} of pure decode ({interval_of(of_decode)})"
    )
    reached = against.ratio >= 1.7 and of_decode.ratio >= 0.6
    return report("input pipeline, 500 x 375 JPEG", figure, "at least 1.7 and 0.6", reached)


def workers() -> bool:
    """Images/s with one loader worker per core, against one worker."""
    cores = host.usable_cores()
    with jpegs(200) as root:
        one, all_of_them = (OurLoader(root, count) for count in (1, cores))
        result = compare_rates(all_of_them.rate, one.rate, 9)
    share = result.ratio / cores
    figure = f"{share:.2f} of {cores} times one worker ({interval_of(result)} for the ratio)"
    return report("loader workers", figure, "at least 0.85", share >= 0.85)


def folder() -> bool:
    """Training from an ImageFolder: this tool's step and loader, against the tutorial's.

    The gain is less than that of the pipeline, since the same cores also train, and normalise the
    images as a GPU would.
    """
    with jpegs(200) as root:
        result = compare_rates(OurTraining(root).rate, TutorialTraining(root).rate, 9)
    figure = f"{result.ratio:.2f} x the tutorial's images/s ({interval_of(result)})"
    return report(f"ImageFolder end to end, {MODEL}", figure, "at least 1.3", result.ratio >= 1.3)


class OurLoader:
    """The loader of a run, without a model behind it."""

    def __init__(self, root: Path, num_workers: int) -> None:
        self._config = folder_config(root, num_workers)
        listing = root.parent / f"listing-{num_workers}.json"
        list_images(root).save_samples(listing)
        self.part = only_part(self._config, listing)
        self.feed = open_feed(self.part)

    def rate(self) -> float:
        """Images/s after the batches that were ready have been used up."""
        return steady_rate(self.feed.batches, self._config.queue_length, lambda batch: None)


class OurTraining(OurLoader):
    """The same with a model and the step of a run."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, host.usable_cores())
        set_up_process(self.part)
        self._update = step_of(self.part)

    def rate(self) -> float:
        """Images/s of training."""
        return steady_rate(
            self.feed.batches,
            self._config.queue_length,
            lambda batch: self._update(iter([(batch[0], batch[1])])),
        )


class TutorialTraining:
    """ImageFolder, Pillow transforms, a DataLoader and a bare loop, with the same model."""

    def __init__(self, root: Path) -> None:
        self._model = make_module(MODEL, 2)
        self._optimizer = torch.optim.SGD(
            self._model.parameters(),
            lr=RECIPE.lr,
            momentum=RECIPE.momentum,
            weight_decay=RECIPE.weight_decay,
        )
        self._criterion = nn.CrossEntropyLoss()
        self._queue = 2 * host.usable_cores()
        loader = DataLoader(
            datasets.ImageFolder(str(root), TUTORIAL),
            batch_size=BATCH,
            shuffle=True,
            num_workers=host.usable_cores(),
            drop_last=True,
            persistent_workers=True,
        )
        self._batches = endless(loader)

    def rate(self) -> float:
        """Images/s of training."""
        return steady_rate(self._batches, self._queue, self._step)

    def _step(self, batch: Sequence[torch.Tensor]) -> None:
        images, labels = batch
        self._optimizer.zero_grad()
        self._criterion(self._model(images), labels).backward()
        self._optimizer.step()


def steady_rate(
    batches: Iterator[Sequence[torch.Tensor]],
    queue: int,
    step: Callable[[Sequence[torch.Tensor]], object],
) -> float:
    """Images/s over 20 batches, after the batches that were loaded in the pause.

    Ends with a pause in which the workers fill their queue: they would take cores from the other
    side of a comparison.
    """
    for _ in range(queue + 1):
        step(next(batches))
    began_s = time.perf_counter()
    images = 0
    for _ in range(20):
        batch = next(batches)
        step(batch)
        images += len(batch[1])
    took_s = time.perf_counter() - began_s
    time.sleep(1.5 * took_s * queue / 20)
    return images / took_s


def endless(loader: DataLoader[Sequence[torch.Tensor]]) -> Iterator[Sequence[torch.Tensor]]:
    while True:
        yield from loader


def folder_config(root: Path, num_workers: int) -> RunConfig:
    config = cpu_config(
        Request(
            device="cpu",
            modes=("single",),
            model=MODEL,
            data=str(root),
            image_size=IMAGE_SIZE,
            batch_per_gpu=BATCH,
            workers_per_gpu=num_workers,
        )
    )
    return replace(config, num_classes=2)


def parts(files: Sequence[str]) -> list[range]:
    """The numbers of the files of each batch."""
    return [range(start, start + BATCH) for start in range(0, len(files), BATCH)]


def read_tutorial(path: str) -> object:
    with Image.open(path) as image:
        return TUTORIAL(image.convert("RGB"))


def rate(images: int, work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return images / (time.perf_counter() - began_s)


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread, as a loader worker does."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@contextmanager
def jpegs(count: int) -> Iterator[Path]:
    """An ImageFolder of JPEGs of ImageNet's usual size, smooth and rough like photographs."""
    generator = torch.Generator().manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "images"
        for name in ("cat", "dog"):
            (root / name).mkdir(parents=True)
        for number in range(count):
            coarse = torch.rand(1, 3, 12, 16, generator=generator)
            smooth = nn.functional.interpolate(coarse, (375, 500), mode="bicubic")[0]
            noise = torch.randn(3, 375, 500, generator=generator) * 0.04
            pixels = ((smooth + noise).clamp(0, 1) * 255).to(torch.uint8)
            path = root / ("cat", "dog")[number % 2] / f"{number}.jpg"
            transforms.functional.to_pil_image(pixels).save(path, quality=90)
        yield root
