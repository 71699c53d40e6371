import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from dubito.data import make_forecasts
from dubito.doubt import OnlineConformal, PredictionIntervals
from dubito.monitor import forecast_coverage
from dubito.outputs import Normal, Quantiles
from dubito.report import forecast_report
from tests.cli.conftest import Run, assert_same

OPTIONS = ["--time", "date", "--series", "hospital", "--horizon", "horizon"]
OPTIONS += ["--quantiles", "q_*", "--label", "admissions"]


@pytest.fixture
def frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    monkeypatch.chdir(tmp_path)
    made = pd.DataFrame(make_forecasts(30))
    made.to_csv("all.csv", index=False)
    return made


def test_a_file_has_the_intervals_of_the_library(run: Run, frame: pd.DataFrame) -> None:
    done = run("forecast", "all.csv", *OPTIONS, "-o", "out.csv", "--report", "page.html", "--json")
    assert done.exit_code == 0, done.output
    quantiles = Quantiles(frame.filter(like="q_").to_numpy(), [0.05, 0.5, 0.95])
    found = OnlineConformal().replay(
        quantiles,
        frame["admissions"].astype(float).to_numpy(),
        time=frame["date"].to_numpy(dtype="datetime64[D]"),
        series=frame["hospital"].to_numpy(dtype=str),
        horizon=frame["horizon"].to_numpy(),
    )
    assert isinstance(found, PredictionIntervals)
    written = pd.read_csv("out.csv")
    assert written["low"].to_numpy() == pytest.approx(found.low)
    y = frame["admissions"].astype(float).to_numpy()
    is_corrected = found.low != frame["q_0.05"].to_numpy()
    inside = ((found.low <= y) & (y <= found.high))[~np.isnan(y) & is_corrected]
    printed = json.loads(done.stdout)
    assert printed["total"]["corrected"] == pytest.approx(inside.mean())
    assert printed["n_future"] == int(np.isnan(y).sum())
    assert Path("page.html").read_text().count("<svg") == 4
    ends = [(y <= bound)[~np.isnan(y) & is_corrected].mean() for bound in (found.low, found.high)]
    rows = printed["reliability"]
    assert [one["level"] for one in rows] == [0.05, 0.5, 0.95]
    assert [rows[0]["corrected"], rows[2]["corrected"]] == pytest.approx(ends)
    known = frame[is_corrected].dropna(subset="admissions")
    below = [(known["admissions"] <= known[q]).mean() for q in ("q_0.05", "q_0.5", "q_0.95")]
    assert [one["raw"] for one in rows] == pytest.approx(below)
    by_time = frame.assign(inside=(found.low <= y) & (y <= found.high)).loc[known.index]
    rolling = by_time.sort_values("date", kind="stable")["inside"].rolling(100).mean().dropna()
    assert printed["lowest_rolling"] == pytest.approx(rolling.min())
    shown = printed["rolling"]
    assert [shown[0]["corrected"], shown[-1]["corrected"]] == pytest.approx(
        [rolling.iloc[0], rolling.iloc[-1]]
    )
    assert len(shown) == min(len(rolling), 120)
    assert printed["n_warm_up"] == int((~np.isnan(y) & ~is_corrected).sum()) > 0


def test_a_run_resumes_as_if_it_had_never_stopped(run: Run, frame: pd.DataFrame) -> None:
    whole = run("forecast", "all.csv", *OPTIONS, "--state", "a.json", "-o", "a.csv")
    assert whole.stdout.startswith("Intervals at 90.0 % covered")
    assert max(map(len, whole.stdout.splitlines())) <= 80
    dates = sorted(frame["date"].unique())
    early = frame[frame["date"] <= dates[17]].copy()
    known = pd.to_datetime(early["date"]) + pd.to_timedelta(7 * (early["horizon"] + 1), unit="D")
    early.loc[known > pd.Timestamp(dates[17]), "admissions"] = None
    early.to_csv("early.csv", index=False)
    run("forecast", "early.csv", *OPTIONS, "--state", "b.json", "-o", "b1.csv")
    run("forecast", "all.csv", *OPTIONS, "--state", "b.json", "-o", "b2.csv")
    parts = pd.concat([pd.read_csv("b1.csv"), pd.read_csv("b2.csv")], ignore_index=True)
    pd.testing.assert_frame_equal(parts, pd.read_csv("a.csv"), check_exact=True)
    assert Path("a.json").read_text() == Path("b.json").read_text()
    again = run("forecast", "all.csv", *OPTIONS, "--state", "b.json")
    assert "no forecasts after those" in again.stdout


def test_point_forecasts_and_mistakes(run: Run, frame: pd.DataFrame) -> None:
    base = ["forecast", "all.csv", "--time", "date", "--label", "admissions"]
    done = run(*base, "--series", "hospital", "--horizon", "horizon", "--forecast", "q_0.5")
    assert "truths came before the first correction" in done.stdout
    assert "--quantiles 'q_*'" in run(*base).stderr
    wrong = run("forecast", "all.csv", *OPTIONS, "--time", "hospital")
    assert "dates such as 2024-11-23" in " ".join(wrong.stderr.split())
    run("forecast", "all.csv", *OPTIONS, "--state", "s.json")
    other = run("forecast", "all.csv", *OPTIONS, "--state", "s.json", "--level", "0.8")
    assert "--level 0.9" in " ".join(other.stderr.split())


def test_help_lists_the_options(run: Run) -> None:
    assert_same(run("forecast", "--help").stdout, "help_forecast")


def test_reliability_of_normal_forecasts_is_that_of_their_quantiles() -> None:
    rng = np.random.default_rng(0)
    y, std = rng.normal(size=400), np.full(400, 0.5)
    bounds = -1.0 * np.ones(400), np.ones(400)
    names = ["a"] * 400
    found = forecast_coverage(
        y,
        (bounds[0] / 2, bounds[1] / 2),
        bounds,
        level=0.8,
        series=names,
        horizon=[0] * 400,
        month=names,
        outputs=Normal(np.zeros(400), std),
    )
    for one in found.reliability:
        assert one.raw == pytest.approx(np.mean(y <= norm.ppf(one.level, 0, 0.5)))
    ours = {one.level: one.corrected for one in found.reliability if one.corrected is not None}
    assert ours == {0.1: np.mean(y <= -1), 0.9: np.mean(y <= 1)}
    few = forecast_coverage(
        y[:50],
        None,
        (bounds[0][:50], bounds[1][:50]),
        level=0.8,
        series=names[:50],
        horizon=[0] * 50,
        month=names[:50],
    )
    assert (few.rolling, few.lowest_rolling) == ((), None)
    assert [one.raw for one in few.reliability] == [None, None]
    assert "Rolling" not in forecast_report(few).html


def weekly(frame: pd.DataFrame, week: int) -> pd.DataFrame:
    """Return the file of a week: forecasts up to its date, and truths known by then."""
    dates = sorted(frame["date"].unique())
    found = frame[frame["date"] <= dates[week]].copy()
    known = pd.to_datetime(found["date"]) + pd.to_timedelta(7 * (found["horizon"] + 1), unit="D")
    found.loc[known > pd.Timestamp(dates[week]), "admissions"] = None
    return found


def test_truths_without_new_forecasts_are_kept_and_judged(run: Run, frame: pd.DataFrame) -> None:
    first, second = weekly(frame, 17), weekly(frame, 18)
    first.to_csv("first.csv", index=False)
    run("forecast", "first.csv", *OPTIONS, "--state", "s.json", "-o", "issued.csv")
    rows = second["date"].isin(first["date"])
    second[rows].to_csv("truths.csv", index=False)
    done = run("forecast", "truths.csv", *OPTIONS, "--state", "s.json")
    y = second.loc[rows, "admissions"].to_numpy(dtype=float)
    is_told = ~np.isnan(y) & first["admissions"].isna().to_numpy()
    issued = pd.read_csv("issued.csv")
    inside = ((issued["low"] <= y) & (y <= issued["high"]))[is_told]
    assert f"of {is_told.sum()} truths as forecast, and {inside.mean():.1%}".replace(
        "%", " %"
    ) in " ".join(done.stdout.split())
    assert "truths.csv has no new forecasts" in done.stdout
    second[~rows].drop(columns="admissions").to_csv("new.csv", index=False)
    future = run("forecast", "new.csv", *OPTIONS, "--state", "s.json", "-o", "parts.csv")
    assert "No truths of intervals at 90.0 % yet" in future.stdout
    second.to_csv("second.csv", index=False)
    run("forecast", "second.csv", *OPTIONS, "-o", "whole.csv")
    whole = pd.read_csv("whole.csv")[(~rows).to_numpy()].reset_index(drop=True)
    pd.testing.assert_frame_equal(pd.read_csv("parts.csv"), whole, check_exact=True)
    assert "In all runs, intervals covered" in done.stdout


def test_late_forecasts_are_issued_at_the_last_date_and_otherwise_named(
    run: Run, frame: pd.DataFrame
) -> None:
    early = weekly(frame, 17)
    dates = sorted(early["date"].unique())
    is_late = (early["hospital"] == early["hospital"].iloc[0]) & (early["date"] >= dates[16])
    early[~is_late].to_csv("first.csv", index=False)
    run("forecast", "first.csv", *OPTIONS, "--state", "s.json")
    early.to_csv("second.csv", index=False)
    done = run("forecast", "second.csv", *OPTIONS, "--state", "s.json", "-o", "out.csv")
    n_late = int((is_late & (early["date"] == dates[16])).sum())
    assert f"{n_late} forecasts are older" in " ".join(done.output.split())
    assert set(pd.read_csv("out.csv")["time"]) == {dates[17]}


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("horizon", 1.5, "`horizon` must hold whole numbers of at least 0, got '1.5' in row 4"),
        ("horizon", None, "got a blank cell in row 4"),
        ("hospital", None, "must name the series of each row, got a blank cell in row 4"),
        ("date", None, "`date` must hold a time in each row, got a blank cell in row 4"),
    ],
)
def test_bad_cells_are_named(
    run: Run, frame: pd.DataFrame, column: str, cell: object, message: str
) -> None:
    frame = frame.astype({"horizon": float})
    frame.to_csv("fine.csv", index=False)
    assert "covered" in run("forecast", "fine.csv", *OPTIONS).stdout  # 1.0 is 1
    frame.loc[4, column] = cell
    frame.to_csv("bad.csv", index=False)
    assert message in " ".join(run("forecast", "bad.csv", *OPTIONS).stderr.split())


def test_mistakes_of_options_are_explained(run: Run, frame: pd.DataFrame) -> None:
    def error(*options: str) -> str:
        return " ".join(run("forecast", "all.csv", *options).stderr.split())

    assert "Pass --level 0.9." in error(*OPTIONS, "--level", "90")
    some = [one for one in OPTIONS if "horizon" not in one]
    assert "horizon 0, " in error(*some)
    assert "np.str_" not in error(*some)
    assert "(rows 0 and 1). Pass --horizon, or remove one." in error(*some)
    assert "one kind of forecasts" in error(*OPTIONS, "--forecast", "q_0.5")
    assert "no column 'place' for --series" in error(*OPTIONS, "--series", "place")
    frame.rename(columns={"admissions": "target"}).to_csv("target.csv", index=False)
    points = ["--time", "date", "--series", "hospital", "--horizon", "horizon"]
    done = run("forecast", "target.csv", *points, "--forecast", "q_0.5")
    assert "covered" in done.stdout


def test_times_with_a_zone_are_in_utc(run: Run, frame: pd.DataFrame) -> None:
    run("forecast", "all.csv", *OPTIONS, "-o", "a.csv")
    frame["date"] = frame["date"].astype(str) + "T01:00:00+01:00"
    frame.to_csv("zones.csv", index=False)
    done = run("forecast", "zones.csv", *OPTIONS, "-o", "b.csv")
    assert "timezones" not in done.stderr
    assert pd.read_csv("a.csv")["low"].tolist() == pd.read_csv("b.csv")["low"].tolist()
