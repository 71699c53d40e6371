"""Policies as the text of a file."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dubito.decide import Policy
from dubito.errors import BadFileError


def policy_of(document: str) -> Policy:
    """Return the policy that the text of a file holds; all of it is checked."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "policy.json"
        path.write_bytes(document.encode("utf-8", "surrogatepass"))
        try:
            return Policy.load(path)
        except BadFileError as error:
            fix = error.fix.replace(str(path), "policy.json")
            raise BadFileError("The policy", error.problem, fix) from error


def text_of_policy(policy: Policy) -> str:
    """Return the text of a policy's file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "policy.json"
        policy.save(path)
        return path.read_text("utf-8")


def content_of(document: str) -> dict[str, Any]:
    """Return what the text of a policy's file says, but for when it was fitted."""
    content: dict[str, Any] = json.loads(document)
    provenance = {name: one for name, one in content["provenance"].items() if name != "created"}
    return {**content, "provenance": provenance, "checksum": None}
