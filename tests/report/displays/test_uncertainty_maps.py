"""Maps of doubt show what they were given, on one scale."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from dubito.errors import BadValueError
from dubito.report import UncertaintyMapDisplay

rng = np.random.default_rng(0)
IMAGE, NOISE, IGNORANCE = rng.random((6, 8)), rng.random((6, 8)), 2 * rng.random((6, 8))


def test_maps_are_drawn_as_they_are_on_one_scale() -> None:
    display = UncertaintyMapDisplay.from_maps(IMAGE, NOISE, IGNORANCE)
    drawn = [ax.get_images()[0] for ax in display.axes_]
    for picture, values in zip(drawn, (IMAGE, NOISE, IGNORANCE), strict=True):
        np.testing.assert_array_equal(picture.get_array(), values)
    assert drawn[1].get_clim() == drawn[2].get_clim() == (0, IGNORANCE.max())
    titles = [ax.get_title() for ax in display.axes_]
    assert titles[1:] == ["aleatoric: noise in the data", "epistemic: ignorance of the model"]


def test_several_images_share_a_figure() -> None:
    figure = Figure()
    rows = figure.subplots(2, 3)
    shown = [
        UncertaintyMapDisplay.from_maps(IMAGE, NOISE * k, IGNORANCE, axes=row)
        for k, row in enumerate(rows)
    ]
    assert [one.axes_ for one in shown] == [tuple(row) for row in rows]
    assert shown[1].figure_ is figure
    for k, row in enumerate(rows):
        np.testing.assert_array_equal(row[1].get_images()[0].get_array(), NOISE * k)


def test_more_or_fewer_axes_are_refused() -> None:
    message = (
        "`axes` of UncertaintyMapDisplay must be 3, one for each map. Got 2. "
        "Try a row of `figure.subplots(n_images, 3)`."
    )
    with pytest.raises(BadValueError) as caught:
        UncertaintyMapDisplay.from_maps(IMAGE, NOISE, IGNORANCE, axes=Figure().subplots(1, 2))
    assert str(caught.value) == message


def test_maps_of_another_image_are_refused() -> None:
    with pytest.raises(
        BadValueError, match=r"`epistemic` of UncertaintyMapDisplay must be of \(6, 8\)"
    ):
        UncertaintyMapDisplay.from_maps(IMAGE, NOISE, IGNORANCE[:3])


def test_colors_are_taken_and_no_doubt_at_all_is_drawn() -> None:
    nothing = np.zeros((6, 8))
    display = UncertaintyMapDisplay.from_maps(rng.random((6, 8, 3)), nothing, nothing)
    assert display.axes_[1].get_images()[0].get_clim() == (0, 1e-12)
