"""Train an over-confident network on Fashion-MNIST and keep its predictions as sample data.

A LeNet5 sees the classes 0..7, never a Bag (8) or an Ankle boot (9), without regularization and
long past the epoch with the least test log loss; nothing is selected on the rows that are kept.
Run `python -m studies.sample_predictions` from the root of the repository, with PyTorch and
scikit-learn. It gives the same bytes on the same machine; other builds of PyTorch round otherwise.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from studies.common.images import FOLDER, Images

CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker")
UNSEEN_LABELS = (8, 9)
N_FEATURES = 84
BATCH_ROWS = 64
LEARNING_RATE = 1e-3
SEED = 0
OUTPUT = Path("src/dubito/data/samples/fashion_mnist.npz")

Arrays = dict[str, npt.NDArray[Any]]


@final
@dataclass(frozen=True, slots=True)
class Sizes:
    """How many rows each set has, and how many epochs the training."""

    train_rows: int = 16_000
    half_rows: int = 4_000
    ood_rows: int = 1_000
    epochs: int = 30


QUICK = Sizes(train_rows=256, half_rows=200, ood_rows=100, epochs=1)


@final
class LeNet5(nn.Module):
    """LeNet5 with ReLU and max pooling; takes images in 0..1 and normalizes them itself."""

    def __init__(self, mean: float, std: float) -> None:
        super().__init__()
        self.mean = mean
        self.std = std
        self.body = nn.Sequential(
            *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, N_FEATURES), nn.ReLU()),
        )
        self.head = nn.Linear(N_FEATURES, len(CLASSES))

    def features(self, pixels: Tensor) -> Tensor:
        """The penultimate activations, after ReLU."""
        activations: Tensor = self.body((pixels - self.mean) / self.std)
        return activations

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(pixels))
        return logits


@final
@dataclass(frozen=True, slots=True)
class Scores:
    """How good, and how over-confident, a network is on some images."""

    log_loss: float
    accuracy: float
    confidence: float

    @classmethod
    @torch.inference_mode()
    def of(cls, model: LeNet5, images: Images) -> Self:
        """The scores of a network on labeled images."""
        logits = torch.cat([model(pixels) for pixels in torch.split(images.pixels, 1_000)])
        confidence, predicted = logits.softmax(1).max(1)
        return cls(
            log_loss=float(functional.cross_entropy(logits, images.labels)),
            accuracy=float((predicted == images.labels).float().mean()),
            confidence=float(confidence.mean()),
        )

    def __str__(self) -> str:
        return (
            f"log loss {self.log_loss:.4f}  accuracy {self.accuracy:.4f}  "
            f"confidence - accuracy {self.confidence - self.accuracy:+.4f}"
        )


def train_epoch(
    model: LeNet5, images: Images, optimizer: torch.optim.Optimizer, generator: torch.Generator
) -> None:
    """One pass of plain Adam over the images, in random order."""
    order = torch.randperm(len(images.labels), generator=generator)
    for rows in torch.split(order, BATCH_ROWS):
        loss = functional.cross_entropy(model(images.pixels[rows]), images.labels[rows])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()


def train(
    images: Images, held_out: Images, n_epochs: int, generator: torch.Generator
) -> tuple[LeNet5, tuple[Scores, ...]]:
    """The network after the last epoch, and its scores on held-out images after each."""
    model = LeNet5(float(images.pixels.mean()), float(images.pixels.std()))
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    curve = []
    for epoch in range(1, n_epochs + 1):
        train_epoch(model, images, optimizer, generator)
        curve.append(Scores.of(model, held_out))
        print(f"epoch {epoch:2d}  test: {curve[-1]}", flush=True)
    print(f"last      train: {Scores.of(model, images)}")
    return model, tuple(curve)


def add_noise(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Gaussian noise of standard deviation 0.3, clipped to 0..1."""
    return (pixels + 0.3 * torch.randn(pixels.shape, generator=generator)).clamp(0, 1)


def blur(pixels: Tensor) -> Tensor:
    """A Gaussian blur of standard deviation 2 pixels, over 9 x 9 pixels."""
    line = torch.exp(-(torch.arange(-4.0, 5.0) ** 2) / 8)
    kernel = torch.outer(line, line) / line.sum() ** 2
    return functional.conv2d(pixels, kernel[None, None], padding=4)


def lower_contrast(pixels: Tensor) -> Tensor:
    """A quarter of the contrast, around each image's mean."""
    mean = pixels.mean(dim=(1, 2, 3), keepdim=True)
    return mean + 0.25 * (pixels - mean)


def occlude(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """A black square of 14 x 14 pixels, anywhere in the image."""
    tops = torch.randint(0, 15, (len(pixels), 1, 1, 1), generator=generator)
    lefts = torch.randint(0, 15, (len(pixels), 1, 1, 1), generator=generator)
    y = torch.arange(28).reshape(1, 1, 28, 1)
    x = torch.arange(28).reshape(1, 1, 1, 28)
    is_hidden = (y >= tops) & (y < tops + 14) & (x >= lefts) & (x < lefts + 14)
    return pixels.masked_fill(is_hidden, 0)


def corrupt(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """In four equal blocks: noise, blur, low contrast, occlusion."""
    noisy, blurred, faint, hidden = pixels.chunk(4)
    parts = (add_noise(noisy, generator), blur(blurred), lower_contrast(faint))
    return torch.cat((*parts, occlude(hidden, generator)))


def draw_digits(n_rows: int, generator: torch.Generator) -> Tensor:
    """Digits of scikit-learn, enlarged from 8 x 8 to 28 x 28 bilinearly, in 0..1."""
    digits = torch.from_numpy(load_digits().images).float().unsqueeze(1) / 16
    rows = torch.randperm(len(digits), generator=generator)[:n_rows]
    return functional.interpolate(digits[rows], size=(28, 28), mode="bilinear")


@torch.inference_mode()
def predict(model: LeNet5, name: str, pixels: Tensor, labels: Tensor | None = None) -> Arrays:
    """The arrays `{name}_logits`, `{name}_features` and, where known, `{name}_labels`."""
    features = model.features(pixels)
    logits = model.head(features)
    confidence = float(logits.softmax(1).amax(1).mean())
    print(f"{name:14s}  {len(pixels)} rows  mean confidence {confidence:.4f}")
    arrays: Arrays = {
        f"{name}_logits": logits.numpy(),
        f"{name}_features": features.numpy().astype(np.float16),
    }
    if labels is not None:
        arrays[f"{name}_labels"] = labels.numpy().astype(np.int8)
    return arrays


def predict_all(
    model: LeNet5, kept: Images, test_split: Images, sizes: Sizes, generator: torch.Generator
) -> Arrays:
    """The predictions for both halves of the held-out rows and the three OOD sets."""
    validation, test = (kept.take(rows) for rows in torch.arange(2 * sizes.half_rows).chunk(2))
    corrupted = test.take(torch.arange(sizes.ood_rows))
    each = sizes.ood_rows // len(UNSEEN_LABELS)
    unseen = [test_split.draw([label], each, generator).pixels for label in UNSEEN_LABELS]
    return {
        **predict(model, "validation", validation.pixels, validation.labels),
        **predict(model, "test", test.pixels, test.labels),
        **predict(model, "unseen_classes", torch.cat(unseen)),
        **predict(model, "digits", draw_digits(sizes.ood_rows, generator)),
        **predict(model, "corrupted", corrupt(corrupted.pixels, generator), corrupted.labels),
    }


def describe(model: LeNet5, curve: Sequence[Scores], sizes: Sizes) -> str:
    """How the predictions were made, as JSON."""
    facts = {
        "made_by": "studies/sample_predictions.py",
        "model": f"LeNet5, {N_FEATURES} penultimate features, ReLU, no regularization",
        "optimizer": f"Adam, learning rate {LEARNING_RATE}, batches of {BATCH_ROWS}",
        "seed": SEED,
        **asdict(sizes),
        "torch": torch.__version__,
        "pixel_mean": model.mean,
        "pixel_std": model.std,
        "rows_from": "training: official training split; "
        "all others but digits: official test split",
        "corrupted": "the first rows of the test half, in four equal blocks: noise, blur, "
        "low contrast, occlusion",
        "unseen_classes": "Bag in the first half, Ankle boot in the second",
        "test_log_loss_by_epoch": [round(scores.log_loss, 4) for scores in curve],
        "licences": {
            "Fashion-MNIST": "MIT, Copyright 2017 Zalando SE",
            "digits": "Optical Recognition of Handwritten Digits (Alpaydin and Kaynak, 1998), "
            "UCI Machine Learning Repository, CC BY 4.0, from scikit-learn",
        },
    }
    return json.dumps(facts)


def make(folder: Path, sizes: Sizes) -> Arrays:
    """Every array of the sample file, by name."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    seen = range(len(CLASSES))
    test_split = Images.read(folder, "t10k")
    kept = test_split.draw(seen, 2 * sizes.half_rows, generator)
    images = Images.read(folder, "train").draw(seen, sizes.train_rows, generator)
    model, curve = train(images, kept, sizes.epochs, generator)
    return {
        **predict_all(model, kept, test_split, sizes, generator),
        "weight": model.head.weight.detach().numpy(),
        "bias": model.head.bias.detach().numpy(),
        "classes": np.array(CLASSES),
        "meta": np.array(describe(model, curve, sizes)),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, train, and write the file."""
    parser = argparse.ArgumentParser(description="Make the sample predictions of dubito.")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the idx files are")
    parser.add_argument("--output", type=Path, help=f"file to write (default: {OUTPUT})")
    parser.add_argument("--quick", action="store_true", help="few rows, one epoch; needs --output")
    options = parser.parse_args(arguments)
    if options.quick and options.output is None:
        parser.error(
            "`--output` of sample_predictions must be given with --quick. Got none. "
            "Try --output quick.npz."
        )
    output: Path = options.output or OUTPUT
    arrays = make(options.folder, QUICK if options.quick else Sizes())
    np.savez_compressed(output, allow_pickle=False, **arrays)
    print(f"{output}: {output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
