import pickle

from dubito.errors import DubitoError
from dubito.serve.http_errors import CONFLICT, HTTPError


def test_an_error_has_a_problem_and_a_remedy() -> None:
    error = HTTPError(CONFLICT, "Id 'a' is taken", "Use another id")
    assert str(error) == "Id 'a' is taken. Use another id."
    assert isinstance(error, DubitoError)
    assert isinstance(error, ValueError)
    assert pickle.loads(pickle.dumps(error)).status == 409
