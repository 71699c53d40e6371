"""Policies of all kinds from files: of one class per row, of several labels, of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

from dubito.decide.cascade import Cascade
from dubito.decide.multilabel.label_policy import MultiLabelPolicy
from dubito.decide.policy.policy import Policy
from dubito.decide.regression.regression_policy import RegressionPolicy
from dubito.serialization.documents import decode_document, read_text
from dubito.serialization.schema import document_schema

AnyPolicy = Policy | MultiLabelPolicy | RegressionPolicy
KINDS = {"MultiLabelPolicy": MultiLabelPolicy, "RegressionPolicy": RegressionPolicy}


def load_policy(path: str | PathLike[str]) -> AnyPolicy:
    """Return the policy in a file: of one class per row, of several labels, or of a regression.

    Parameters
    ----------
    path : str or path
        The file. Nothing in it is executed, and every entry is checked.

    Returns
    -------
    Policy, MultiLabelPolicy or RegressionPolicy

    Examples
    --------
    >>> from dubito import MultiLabelPolicy
    >>> from dubito.decide import load_policy
    >>> import tempfile
    >>> path = f"{tempfile.mkdtemp()}/policy.json"
    >>> MultiLabelPolicy.fit([[0.9], [0.2]] * 20, [[1.0], [0.0]] * 20).save(path)
    >>> load_policy(path)
    MultiLabelPolicy(1 label, costs)
    """
    return policy_from_json(read_text(path), fspath(path))


def load_policy_or_cascade(path: str | PathLike[str]) -> AnyPolicy | Cascade:
    """Return the policy or the cascade in a file.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    Policy, MultiLabelPolicy, RegressionPolicy or Cascade
    """
    return policy_or_cascade_from_json(read_text(path), fspath(path))


def policy_or_cascade_from_json(text: str, name: str) -> AnyPolicy | Cascade:
    """Return the policy or the cascade in the text of a file, which error messages call `name`."""
    document, is_intact = decode_document(text, name)
    kind = _class_of(document, {**KINDS, "Cascade": Cascade})
    found: AnyPolicy | Cascade = kind.from_document(document, is_intact, name)
    return found


def policy_from_json(text: str, name: str = "The policy") -> AnyPolicy:
    """Return the policy in the text of a file, of any kind.

    Parameters
    ----------
    text : str
        What `to_json` of a policy returned.
    name : str
        What error messages call it.

    Returns
    -------
    Policy, MultiLabelPolicy or RegressionPolicy
    """
    document, is_intact = decode_document(text, name)
    policy: AnyPolicy = _class_of(document).from_document(document, is_intact, name)
    return policy


def policy_schema() -> dict[str, Any]:
    """Return the JSON schema of policy files of all kinds, for programs in other languages.

    It is derived from the fields that dubito itself checks. Rules between fields, such as that a
    policy and its calibrator have the same classes, are checked only when dubito reads a file.

    Returns
    -------
    dict
        A JSON schema (draft 2020-12).

    Examples
    --------
    >>> policy_schema()["$defs"]["TemperatureScaling"]["properties"]["class"]
    {'const': 'TemperatureScaling'}
    """
    return document_schema((Policy, MultiLabelPolicy, RegressionPolicy, Cascade), "dubito policy")


def seal_policy(path: str | PathLike[str]) -> None:
    """Check a policy file that was edited by hand, and update its checksum so that it loads."""
    document, _ = decode_document(read_text(path), fspath(path))
    _class_of(document, {**KINDS, "Cascade": Cascade}).seal(path)


def _class_of(document: dict[str, Any], kinds: Mapping[str, Any] = KINDS) -> Any:
    """Return the class of the policy in a document; `Policy` says what is wrong with others."""
    kind = document.get("class")
    return kinds.get(kind, Policy) if isinstance(kind, str) else Policy
