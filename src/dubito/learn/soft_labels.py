"""Labels as probabilities: smoothed, or uncertain in one of three ways."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from dubito.arrays import as_share
from dubito.errors import BadValueError
from dubito.learn.class_likelihood import label_shares
from dubito.learn.likelihood import as_count, require_tensor

__all__ = ["as_form", "smooth_labels", "smoothed", "uncertain_labels"]

FORMS = ("all", "others")
WAYS = ("soft", "left out", "class")


def smooth_labels(
    y: Tensor, n_classes: int, epsilon: float, form: Literal["all", "others"] = "all"
) -> Tensor:
    """Return label probabilities, rows x classes, that leave a share of doubt in every label.

    Form "all" spreads `epsilon` over all classes, epsilon / K each; "others" gives epsilon / (K -
    1) to every class but the label's. `y` holds class numbers or label probabilities. Szegedy et
    al., "Rethinking the inception architecture for computer vision", 2016.

    >>> smooth_labels(torch.tensor([0]), n_classes=4, epsilon=0.5)
    tensor([[0.6250, 0.1250, 0.1250, 0.1250]])
    """
    caller = "smooth_labels"
    as_count(n_classes, "n_classes", caller, least=2)
    share = as_share(epsilon, "epsilon", caller)
    as_form(form, caller)
    require_tensor(y, "y", caller)
    shape = (y.shape[0], *y.shape[2:]) if y.is_floating_point() else tuple(y.shape)
    shares = label_shares(y, shape, n_classes, caller)
    floats = shares if shares.is_floating_point() else shares.to(torch.get_default_dtype())
    return smoothed(floats, share, form).movedim(-1, 1)


def smoothed(shares: Tensor, epsilon: float, form: str) -> Tensor:
    """Return label probabilities, classes on the last axis, with a share of doubt."""
    n_classes = shares.shape[-1]
    if form == "all":
        return (1 - epsilon) * shares + epsilon / n_classes
    return (1 - epsilon) * shares + epsilon / (n_classes - 1) * (1 - shares)


def as_form(form: Any, caller: str) -> None:
    """Raise unless it is a known form of smoothing."""
    if form not in FORMS:
        raise BadValueError("form", caller, "'all' or 'others'", repr(form), "form='all'")


def uncertain_labels(
    y: Tensor, n_classes: int, mark: int, way: Literal["soft", "left out", "class"] = "soft"
) -> Tensor:
    """Return label probabilities of rows of which some are marked as uncertain, as by a person.

    A marked row may be any class alike ("soft"), have no label (NaN, which every loss leaves out),
    or be of one more class, the last one ("class"): then there are `n_classes` + 1 columns. Irvin
    et al., "CheXpert: a large chest radiograph dataset with uncertainty labels", 2019.

    >>> uncertain_labels(torch.tensor([1, -1]), n_classes=2, mark=-1)
    tensor([[0.0000, 1.0000],
            [0.5000, 0.5000]])
    """
    caller = "uncertain_labels"
    as_count(n_classes, "n_classes", caller, least=2)
    require_tensor(y, "y", caller)
    if way not in WAYS:
        rule = "'soft', 'left out' or 'class'"
        raise BadValueError("way", caller, rule, repr(way), "way='soft'")
    if y.is_floating_point() or y.dtype == torch.bool:
        rule, fix = "class numbers and marks", "`.long()`"
        raise BadValueError("y", caller, rule, f"{y.dtype}", fix)
    is_marked = y == mark
    shares = label_shares(y.masked_fill(is_marked, 0), tuple(y.shape), n_classes, caller)
    shares = shares.to(torch.get_default_dtype())
    if way == "class":
        shares = functional.pad(shares.masked_fill(is_marked.unsqueeze(-1), 0), (0, 1))
        shares[..., -1] = is_marked.to(shares.dtype)
    else:
        share = 1 / n_classes if way == "soft" else torch.nan
        shares = shares.masked_fill(is_marked.unsqueeze(-1), share)
    return shares.movedim(-1, 1)
