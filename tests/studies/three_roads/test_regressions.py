"""Three approaches to regression: conditional normals, costs and missing features."""

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LinearRegression

from studies.three_roads import regressions as study


def test_the_joint_normal_conditions_on_what_is_seen() -> None:
    rows = study.normal(0, 200, 50)
    joint = study.Joint.of(rows.x, rows.t)
    # With all features it is least squares; its variance differs by the degrees of freedom.
    found = joint.given(rows.new_x)
    fitted = LinearRegression().fit(rows.x, rows.t)
    np.testing.assert_allclose(found.mean, fitted.predict(rows.new_x), rtol=1e-9)
    residuals = rows.t - fitted.predict(rows.x)
    assert found.std[0] == pytest.approx(np.sqrt((residuals**2).sum() / 199), rel=1e-9)
    # With some of them it is least squares on those.
    some = joint.given(rows.new_x, [1, 3])
    fewer = LinearRegression().fit(rows.x[:, [1, 3]], rows.t)
    np.testing.assert_allclose(some.mean, fewer.predict(rows.new_x[:, [1, 3]]), rtol=1e-9)
    density = stats.multivariate_normal(rows.x.mean(axis=0), np.cov(rows.x, rowvar=False))
    np.testing.assert_allclose(joint.log_density(rows.new_x), density.logpdf(rows.new_x))


def test_costs_are_pinball_losses_at_a_quantile() -> None:
    rows = study.growing(0, 2000, 4000)
    found = study.costs(rows)
    assert found["conditional"] < found["joint"] < found["direct"]
    given = study.conditional(rows.x, rows.t, rows.new_x)
    gap = rows.new_t - (given.mean + given.std * stats.norm.ppf(0.9))
    assert found["conditional"] == pytest.approx(10 * np.maximum(0.9 * gap, -0.1 * gap).mean())


def test_what_each_approach_can_do_without_a_feature_and_far_away() -> None:
    rows = study.normal(1, 500, 1000)
    without = study.errors_without_a_feature(rows)
    assert without["joint"] < without["direct"]
    assert without["direct"] == pytest.approx(without["conditional"])
    assert study.detection(rows)["joint density"] > 0.8
    assert study.errors(rows)["joint"] == pytest.approx(study.errors(rows)["direct"], rel=1e-9)
