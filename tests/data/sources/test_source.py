"""What readers raise becomes one error that names the file."""

import zipfile
import zlib

import pyarrow as pa
import pytest

from dubito.data.sources import file_errors
from dubito.errors import BadFileError, BadValueError


@pytest.mark.parametrize(
    "error",
    [
        pa.ArrowInvalid("damaged"),
        OSError("damaged"),
        EOFError("damaged"),
        ValueError("damaged.\nMore of it"),
        zipfile.BadZipFile("damaged"),
        zlib.error("dam\x00aged"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_broken_files_are_named(error: Exception) -> None:
    with pytest.raises(BadFileError) as caught, file_errors("f.csv"):
        raise error
    assert str(caught.value).startswith("f.csv cannot be read: damaged. Write the file again")
    assert caught.value.__cause__ is error


def test_an_error_without_a_message_becomes_a_file_error() -> None:
    expected = pytest.raises(BadFileError, match=r"f\.csv cannot be read: it is broken")
    with expected, file_errors("f.csv"):
        raise EOFError


@pytest.mark.parametrize(
    "error", [UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), pa.ArrowInvalid("invalid UTF8 data")]
)
def test_text_that_is_not_utf8_is_reported_as_such(error: Exception) -> None:
    with pytest.raises(BadFileError, match="its text is not UTF-8"), file_errors("f.csv"):
        raise error


@pytest.mark.parametrize("error", [BadValueError("a", "b", "c", "d", "e"), KeyError("bug")])
def test_all_else_passes_through(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, file_errors("f.csv"):
        raise error
    assert caught.value is error
