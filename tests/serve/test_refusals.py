import pickle

from dubito.errors import DubitoError
from dubito.serve.refusals import CONFLICT, RefusedError


def test_a_refusal_says_what_is_wrong_and_what_to_try() -> None:
    refusal = RefusedError(CONFLICT, "Id 'a' is taken", "another id")
    assert str(refusal) == "Id 'a' is taken. Try another id."
    assert isinstance(refusal, DubitoError)
    assert isinstance(refusal, ValueError)
    assert pickle.loads(pickle.dumps(refusal)).status == 409
