"""Segmentation maps as shards: every pixel is a row, with one map in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from dubito.arrays import as_array, as_floats, require_choice
from dubito.data.batch import Batch, make_batch
from dubito.data.shards import ArrayShards, Shards
from dubito.errors import BadTypeError, BadValueError
from dubito.outputs import Logits, Probabilities


@final
@dataclass(frozen=True, slots=True, eq=False)
class PixelShards(Shards):
    """Segmentation maps as shards, one row per pixel; `Audit.of(PixelShards(maps))` audits them.

    Parameters
    ----------
    maps : iterable of (labels, outputs)
        A list, or an object such as a data loader that can be iterated again. Labels have shape
        (height, width) or (images, height, width); outputs have one more axis for the classes.
    kind : {"logits", "probabilities"}, default="logits"
        What the outputs are.
    ignore : int or None, default=255
        Label of pixels that are left out and counted as missing.
    class_axis : int, default=-3
        Axis of the classes: -3 for channels first (PyTorch), -1 for channels last.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito.measure import PixelShards
    >>> labels, logits = np.array([[0, 255]]), np.zeros((3, 1, 2))
    >>> PixelShards([(labels, logits)], kind="logits").sum(lambda batch: batch.n_missing)
    1
    """

    maps: Iterable[tuple[Any, Any]]
    kind: str = "logits"
    ignore: int | None = 255
    class_axis: int = -3

    def parts(self) -> Iterator[Callable[[], Batch]]:
        require_choice(self.kind, ("logits", "probabilities"), "kind", "PixelShards")
        if not isinstance(self.maps, Iterable) or iter(self.maps) is self.maps:
            rule, fix = "must be iterable more than once", "Pass a list of pairs or a data loader"
            raise BadTypeError("maps", "PixelShards", rule, type(self.maps).__name__, fix)
        first_row = 0
        for i, pair in enumerate(self.maps):
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                rule, got = "must be a pair", type(pair).__name__
                fix = "Pass (labels, outputs) for every map"
                raise BadTypeError(f"maps[{i}]", "PixelShards", rule, got, fix)
            whole = self.batch(pair[0], pair[1], i, first_row)
            first_row += len(whole)
            yield from ArrayShards(whole).parts()

    def batch(self, labels: Any, outputs: Any, i: int, first_row: int) -> Batch:
        """Return the pixels of one map as rows.

        Parameters
        ----------
        labels : array
            The label of each pixel, of the shape of the map.
        outputs : array
            Logits or probabilities, with one more axis for the classes.
        i : int
            The position of the map, for error messages.
        first_row : int
            The number of the first pixel in the whole.

        Returns
        -------
        Batch
            One row per pixel; pixels to ignore have no label.
        """
        y = as_array(labels, f"maps[{i}][0]", "PixelShards")
        array = as_floats(outputs, f"maps[{i}][1]", "PixelShards")
        has_axis = array.ndim == y.ndim + 1 and -array.ndim <= self.class_axis < array.ndim
        pixels = np.moveaxis(array, self.class_axis, -1) if has_axis else array
        if not has_axis or pixels.shape[:-1] != y.shape:
            rule = f"must have the shape {y.shape} of the labels and an axis for the classes"
            fix = "Use class_axis=-1 for channels last, -3 for channels first"
            got = f"shape {array.shape}"
            raise BadValueError(f"maps[{i}][1]", "PixelShards", rule, got, fix)
        wrap = Logits if self.kind == "logits" else Probabilities
        flat = y.reshape(-1)
        if self.ignore is not None:
            flat = np.where(flat == self.ignore, np.nan, flat)
        rows = wrap(pixels.reshape(-1, pixels.shape[-1]))
        batch = make_batch(flat, rows, caller=f"maps[{i}]")
        return replace(batch, first_row=first_row)
