"""The address and the key that a user gives, checked before anything is sent."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit, urlunsplit

import httpx

from slotune.tuning.errors import InvalidInputError

__all__ = ["base_address", "usable_key"]

_EXAMPLE = "such as http://127.0.0.1:8080"
_PAGES = re.compile(
    r"(/v1)?(/(health|props|slots|metrics|models|index\.html|completions?|chat/completions|responses|messages"
    r"|embeddings?|infill|tokenize|detokenize|apply-template|rerank(ing)?))?$"
)
"""What people copy along with the address."""
_SOCKET = re.compile(r"(http\+)?unix:|[^:]*\.sock$")
_FILE = re.compile(r"[.~]{0,2}/|[^:/]+\.(log|txt|jsonl?|gz)$")
"""What is given for an address by mistake."""
_MISSPELT = re.compile(r"(https?)[:/]+")
_BARE_IPV6 = re.compile(r"[0-9a-fA-F.]*:[0-9a-fA-F.]*:[0-9a-fA-F:.]*(%\w+)?")
_LARGEST_PORT = 65535


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
    except ValueError as error:  # its own words may repeat a password
        raise InvalidInputError("--url", _shown(text), f"is no address: give one {_EXAMPLE}") from error
    if "@" in parts.netloc:
        cure = "has a name or password in it, which would be printed: leave it out; a key goes into --api-key-file FILE"
        raise InvalidInputError("--url", None, cure)
    if (wrong := _wrong_with(text, parts)) is not None:
        raise InvalidInputError("--url", _shown(text), wrong)
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


def _wrong_with(text: str, parts: SplitResult) -> str | None:
    """Why this is no address, and what to give in its place."""
    if _SOCKET.match(text):
        return f"is a Unix socket, which can't be asked: let the server listen on a port, {_EXAMPLE}"
    if "://" not in text:
        return _without_scheme(text)
    if parts.scheme not in {"http", "https"}:
        return f"must begin with http:// or https://, {_EXAMPLE}"
    return _wrong_host(parts)


def _wrong_host(parts: SplitResult) -> str | None:
    if _BARE_IPV6.fullmatch(parts.netloc):
        return "is no address: an IPv6 address stands in brackets, such as http://[::1]:8080"
    if not _is_plain(parts.netloc):
        return f"is no address: give one {_EXAMPLE}"
    if not parts.hostname:
        return f"names no host: give an address {_EXAMPLE}"
    try:
        has_port = parts.port != 0
    except ValueError:
        has_port = False
    return None if has_port else f"is no address: its port must be a number from 1 to {_LARGEST_PORT}"


def _without_scheme(text: str) -> str:
    wrong = f"must begin with http:// or https://, {_EXAMPLE}"
    if _FILE.match(text):
        return f"{wrong}; a server's log is given with --log FILE"
    match = _MISSPELT.match(text)
    scheme, host = ("http", text) if match is None else (match[1], text[match.end() :])
    if _BARE_IPV6.fullmatch(host):
        host = f"[{host}]"
    elif host.lstrip(":").isdecimal():  # a port alone
        host = f"127.0.0.1:{host.lstrip(':')}"
    try:
        return f"must begin with http:// or https://: give {base_address(f'{scheme}://{host}')}"
    except InvalidInputError:
        return wrong


def _is_plain(netloc: str) -> bool:
    return netloc.isprintable() and not any(letter.isspace() for letter in netloc)


def _shown(text: str) -> str:
    """What was given, as far as a message may repeat it: no secret behind ``?``, nothing that moves the cursor."""
    bare = text.partition("?")[0].rpartition("@")[2]
    return "".join(letter for letter in bare[:200] if letter.isprintable()) or "empty"
