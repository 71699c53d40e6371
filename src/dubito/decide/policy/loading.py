"""Policies of all kinds from files: of one class per row, or of several labels."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any

from dubito.decide.multilabel.label_policy import MultiLabelPolicy
from dubito.decide.policy.policy import Policy
from dubito.serialization.documents import decode_document, read_text


def load_policy(path: str | PathLike[str]) -> Policy | MultiLabelPolicy:
    """Return the policy in a file, of one class per row or of several labels.

    Parameters
    ----------
    path : str or path
        The file. Nothing in it is executed, and every entry is checked.

    Returns
    -------
    Policy or MultiLabelPolicy

    Examples
    --------
    >>> import tempfile
    >>> path = f"{tempfile.mkdtemp()}/policy.json"
    >>> MultiLabelPolicy.fit([[0.9], [0.2]] * 20, [[1.0], [0.0]] * 20).save(path)
    >>> load_policy(path)
    MultiLabelPolicy(1 label, costs)
    """
    return policy_from_json(read_text(path), fspath(path))


def policy_from_json(text: str, name: str = "The policy") -> Policy | MultiLabelPolicy:
    """Return the policy in the text of a file, of one class per row or of several labels.

    Parameters
    ----------
    text : str
        What `to_json` of either policy returned.
    name : str
        What error messages call it.

    Returns
    -------
    Policy or MultiLabelPolicy
    """
    document, is_intact = decode_document(text, name)
    return _class_of(document).from_document(document, is_intact, name)


def seal_policy(path: str | PathLike[str]) -> None:
    """Check a policy file that was edited by hand, and update its checksum so that it loads."""
    document, _ = decode_document(read_text(path), fspath(path))
    _class_of(document).seal(path)


def _class_of(document: dict[str, Any]) -> type[Policy] | type[MultiLabelPolicy]:
    """Return the class of the policy in a document."""
    kind = document.get("class")
    is_by_label = isinstance(kind, str) and kind == MultiLabelPolicy.__name__
    return MultiLabelPolicy if is_by_label else Policy
