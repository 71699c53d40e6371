from pathlib import Path

import pytest

from dubito.cli.reading import require_places
from dubito.errors import BadValueError


def told_of(places: dict[str, str | Path | None], inputs: list[str | Path]) -> str:
    with pytest.raises(BadValueError) as caught:
        require_places(places, inputs, tables=("--review",))
    return str(caught.value)


def test_a_new_file_in_a_folder_that_is_there_is_fine(tmp_path: Path) -> None:
    require_places({"--output": tmp_path / "new.html", "--review": None}, [tmp_path / "in.csv"])


def test_what_is_read_is_never_written_over(tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    twin = tmp_path / ".." / tmp_path.name / "in.csv"
    assert told_of({"--output": twin}, [file]) == (
        "`--output` of dubito must be another file than those that are read. "
        f"Got {twin}. Try --output NEW.csv."
    )
    assert "another file" in told_of({"--output": file, "--review": file}, [])


def test_a_missing_folder_and_another_ending_are_told_first(tmp_path: Path) -> None:
    place = tmp_path / "none" / "report.html"
    assert told_of({"--output": place}, []) == (
        "`--output` of dubito must be in a folder that is there. "
        f"Got {place}. Try mkdir {place.parent}."
    )
    assert told_of({"--review": tmp_path / "review.txt"}, []) == (
        f"`--review` of dubito must be a file in .csv. Got {tmp_path / 'review.txt'}. "
        "Try --review review.csv."
    )


def test_what_would_be_read_the_next_time_goes_elsewhere(tmp_path: Path) -> None:
    place = tmp_path / "decisions.parquet"
    assert told_of({"--output": place}, [f"{tmp_path}/"]) == (
        f"`--output` of dubito must be outside of the folders that are read. Got {place}. "
        "Try --output ../decisions.parquet."
    )
    assert "outside" in told_of({"--output": tmp_path / "parts"}, [tmp_path])
    require_places({"--output": tmp_path / "report.html"}, [tmp_path])


def test_urls_are_compared_as_they_are() -> None:
    require_places({"--output": "s3://bucket/out"}, ["s3://bucket/in", "f.csv"])
    assert "another file" in told_of({"--output": "s3://bucket/in"}, ["s3://bucket/in"])
