"""What bodies look like, for the OpenAPI document: they are read and checked by hand."""

from __future__ import annotations

from typing import Any

from fastapi import Depends
from fastapi.security import HTTPBearer

from dubito.serve.refusals import CONFLICT, FORBIDDEN, MISSING, TOO_LARGE, UNKNOWN, WRONG

ARROW = "application/vnd.apache.arrow.stream"
BEARER = Depends(HTTPBearer(auto_error=False, description="`dubito token create` makes one."))

REFUSED = {
    "description": "Refused, and why.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {"detail": {"type": "string"}},
                "required": ["detail"],
            }
        }
    },
}
REFUSALS: dict[int | str, dict[str, Any]] = dict.fromkeys(
    (UNKNOWN, FORBIDDEN, MISSING, CONFLICT, TOO_LARGE, WRONG), REFUSED
)


def body_of(
    properties: dict[str, Any], required: list[str], *, or_arrow: bool = False, **more: Any
) -> dict[str, Any]:
    """Return how a JSON body is described, which may come as an Arrow stream instead."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
        **more,
    }
    content: dict[str, Any] = {"application/json": {"schema": schema}}
    if or_arrow:
        content[ARROW] = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": content}}


def list_of(items: dict[str, Any]) -> dict[str, Any]:
    """Return how a list that is not empty is described."""
    return {"type": "array", "items": items, "minItems": 1}


def text_of(longest: int) -> dict[str, Any]:
    """Return how a short text is described."""
    return {"type": "string", "minLength": 1, "maxLength": longest}
