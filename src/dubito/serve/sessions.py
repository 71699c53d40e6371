"""Sessions of browsers: which token began one, and until when it lasts, signed by the service."""

from __future__ import annotations

import hmac
import secrets
import time
from dataclasses import dataclass
from hashlib import sha256
from typing import final

from dubito.serve.store.tokens import Token

LONGEST_SECONDS = 12 * 3600.0
NONCE_BYTES = 12


@final
@dataclass(frozen=True, slots=True)
class Session:
    """A session that is ours: which token began it, and until when it lasts."""

    id: str
    token_id: int
    until: float


@final
class Sessions:
    """Makes and reads the text of a session, which tells nothing of the token that began it.

    Whoever changes a letter of it has none; it ends with its token, or after half a day.

    >>> sessions = Sessions(b"only the service knows this")
    >>> ann = Token(7, "ann", frozenset({"review"}), 0.0, None, None)
    >>> sessions.read(sessions.begin(ann)).token_id, sessions.read("7.9999999999.x.forged")
    (7, None)
    """

    def __init__(self, secret: bytes) -> None:
        self.secret = secret

    def begin(self, token: Token) -> str:
        """Return the text of a new session."""
        end = time.time() + LONGEST_SECONDS
        if token.expires is not None:
            end = min(end, token.expires)
        said = f"{token.id}.{int(end)}.{secrets.token_hex(NONCE_BYTES)}"
        return f"{said}.{self.signed('session', said)}"

    def read(self, text: str) -> Session | None:
        """Return what the text of a session says, None where it is over or not ours."""
        said, _, signature = text.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self.signed("session", said).encode()):
            return None
        token_id, until, name = said.split(".")
        return Session(name, int(token_id), float(until)) if float(until) > time.time() else None

    def csrf(self, text: str) -> str:
        """Return what forms of a session must send along; nobody else can know it."""
        return self.signed("form", text)

    def signed(self, kind: str, text: str) -> str:
        """Return the signature of a text; one of a form is none of a session."""
        said = f"{kind} {text}".encode("utf-8", "replace")
        return hmac.new(self.secret, said, sha256).hexdigest()
