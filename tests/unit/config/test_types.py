"""Defaults that follow from the words of a request."""

from __future__ import annotations

import pytest

from mgpubench.config.types import default_image_size, is_own_model


@pytest.mark.parametrize(
    ("model", "image_size"),
    [("tiny-cnn", 32), ("mlp", 32), ("resnet50", 224), ("inception_v3", 299)],
)
def test_every_model_has_its_own_image_size(model: str, image_size: int) -> None:
    assert default_image_size(model) == image_size


@pytest.mark.parametrize(
    ("model", "is_own"), [("resnet50", False), ("tiny-cnn", False), ("nets.small:make_net", True)]
)
def test_a_colon_makes_a_model_the_users_own(model: str, is_own: bool) -> None:
    assert is_own_model(model) is is_own
