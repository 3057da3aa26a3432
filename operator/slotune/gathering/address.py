"""The address and the key that a user gives, checked before anything is sent."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

import httpx

from slotune.tuning.errors import InvalidInputError

__all__ = ["base_address", "usable_key"]

_EXAMPLE = "such as http://127.0.0.1:8080"
_PAGES = re.compile(
    r"(/v1)?(/(health|props|slots|metrics|models|index\.html|completions?|chat/completions|responses|messages"
    r"|embeddings?|infill|tokenize|detokenize|apply-template|rerank(ing)?))?$"
)
"""What people copy along with the address."""


def base_address(url: str) -> str:
    """Scheme, host, port and path of the server: what comes before ``/health``.

    A trailing ``/``, ``/v1`` or page of llama-server such as ``/props``, and what stands behind ``?`` or ``#`` in the
    address bar of the web page, are cut off.

    Raises:
        InvalidInputError: this is no address, or holds a password, which would come out again in what is printed.
    """
    text = url.strip()
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:  # its own words may repeat a password
        raise InvalidInputError("--url", _shown(text), f"is no address: give one {_EXAMPLE}") from error
    if "@" in parts.netloc:
        cure = "has a name or password in it, which would be printed: leave it out; a key goes into --api-key-file FILE"
        raise InvalidInputError("--url", None, cure)
    if parts.scheme in {"unix", "http+unix"}:
        cure = f"is a Unix socket, which can't be asked: let the server listen on a port, {_EXAMPLE}"
        raise InvalidInputError("--url", _shown(text), cure)
    if "://" not in text:
        raise InvalidInputError("--url", _shown(text), f"must begin with http:// or https://, {_EXAMPLE}")
    if not _is_plain(parts.netloc):
        raise InvalidInputError("--url", _shown(text), f"is no address: give one {_EXAMPLE}")
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise InvalidInputError("--url", _shown(text), f"must be an address {_EXAMPLE}")
    base = urlunsplit((parts.scheme, parts.netloc, _PAGES.sub("", parts.path.rstrip("/")), "", ""))
    try:
        httpx.URL(base).host.encode("idna")
    except (httpx.InvalidURL, UnicodeError) as error:
        raise InvalidInputError("--url", _shown(text), f"is no address: give one {_EXAMPLE}") from error
    return base


def usable_key(key: str | None) -> str | None:
    """The key without the spaces around it; None for none.

    Raises:
        InvalidInputError: no HTTP header could carry it.
    """
    bare = (key or "").strip()
    if not (bare.isascii() and bare.isprintable()):
        raise InvalidInputError("--api-key-file", None, "must hold one key of plain characters on a single line")
    return bare or None


def _is_plain(netloc: str) -> bool:
    return netloc.isprintable() and not any(letter.isspace() for letter in netloc)


def _shown(text: str) -> str:
    """What was given, as far as a message may repeat it: no secret behind ``?``, nothing that moves the cursor."""
    bare = text.partition("?")[0].rpartition("@")[2]
    return "".join(letter for letter in bare[:200] if letter.isprintable()) or "empty"
