"""The network speaks of pixels."""

import torch

from studies.segmentation.tiny_unet import TinyUNet


def test_a_network_says_something_of_each_pixel() -> None:
    outputs = TinyUNet(5, (4, 8, 12), 0.1)(torch.zeros(2, 1, 12, 16))
    assert outputs.shape == (2, 5, 12, 16)
