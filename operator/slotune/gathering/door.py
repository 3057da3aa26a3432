"""Whether a llama-server that can be asked more is at an address; each reason why not is one clear error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from slotune.gathering.address import base_address
from slotune.gathering.asking import Answer, Asker, Cause, Silence
from slotune.gathering.foreign import is_llama_model_list, is_router, who_answers
from slotune.llama.server_answers import parse_props
from slotune.tuning.errors import InvalidInputError

__all__ = [
    "ANOTHER_PROGRAM",
    "KEY_IN_FILE",
    "SilentServerError",
    "WrongKeyError",
    "check_door",
    "check_llama",
    "check_tls",
    "is_too_slow",
]

ANOTHER_PROGRAM: Final = "no llama-server but "
"""Begins the cure where another program answers."""
KEY_IN_FILE: Final = "the key in it"
"""Stands for the key in a file that is named before; for one that is not, its name is to be put in."""

_PLAIN = frozenset({200, 401, 403, 404, 503})
"""What only a server without TLS answers to plain HTTP; others hang up, say 400 or redirect."""
_LOGINS = frozenset({"basic", "digest", "negotiate", "ntlm"})
"""Ways to log in that a browser asks for; llama-server's own 401 names none."""
_NOTHING_SAID: Final = "it takes connections and says nothing"
_WHY_SILENT: Final = (
    "it hangs, or requests that stream hold all of its HTTP threads: look again, and if they do, start it with more of "
    "them than it has users (--threads-http N)"
)
_ERRORS = 400
_UNKNOWN_PAGE = frozenset({404, 405, 501})
_ROOT_S = 2.0
"""For the page at ``/``, which is only asked for to name what is not llama-server."""


class WrongKeyError(InvalidInputError):
    """The server wants another API key than the one that was given."""


class SilentServerError(InvalidInputError):
    """Something takes connections and answers none of the questions in time: it hangs, or is too busy to listen.

    Attributes:
        silent_s: path to the seconds that were waited for its answer.
    """

    def __init__(self, base: str, said: Sequence[Silence]) -> None:
        self.silent_s = {one.path: round(one.seconds, 3) for one in said}
        words = f"{_NOTHING_SAID}: {said[0].words}; {_WHY_SILENT}"
        super().__init__("--url", base, words)


def is_too_slow(*said: Answer | Silence) -> bool:
    """Whether none of these was answered in time, though connections came about."""
    return all(isinstance(one, Silence) and one.cause is Cause.SLOW for one in said)


async def check_tls(asker: Asker, limit_s: float) -> None:
    """Whether ``https://`` is right: a plain server would wait for the rest of what TLS begins with, and say nothing.

    Raises InvalidInputError.
    """
    if asker.base.startswith("https://"):
        async with Asker(asker.base.replace("https://", "http://", 1)) as plain:  # and without the key
            said = await plain.get("/health", limit_s)
        if isinstance(said, Answer) and said.status in _PLAIN:
            raise InvalidInputError("--url", asker.base, Cause.NO_TLS.value)


def check_door(asker: Asker, health: Answer | Silence) -> None:
    """Whether anything is there that could be asked more. Raises InvalidInputError."""
    if isinstance(health, Silence):
        if health.cause is not Cause.SLOW:
            raise InvalidInputError("--url", asker.base, health.words)
        return
    _check_redirect(asker, health)
    _check_loading(asker, health)
    if health.status == 400 and b"https" in health.body[:1000].lower() and asker.base.startswith("http://"):
        raise InvalidInputError("--url", asker.base, "it speaks TLS there: try https:// in place of http://")
    if health.status in {502, 503, 504}:
        cure = f"/health answers {health.status}: a proxy that reaches no server behind it, or a server that failed"
        raise InvalidInputError("--url", asker.base, cure)
    _check_proxy(asker, health)


async def check_llama(
    asker: Asker, health: Answer | Silence, props: Answer | Silence, models: Answer | Silence
) -> None:
    """Whether it is a llama-server that lets itself be asked. Raises InvalidInputError, SilentServerError."""
    if isinstance(props, Answer):
        _check_redirect(asker, props)
        _check_loading(asker, props)
        _check_proxy(asker, props)
        if props.status in {401, 403}:
            raise _key_error(asker, props.status)
    if is_router(props):
        cure = "this is llama-server's router: give the address of the server that it started for the model"
        raise InvalidInputError("--url", asker.base, cure)
    if is_llama_model_list(models) and _is_missing(health) and _is_missing(props):
        cure = "only /v1 is passed on to llama-server, by a gateway: give the address of the server itself"
        raise InvalidInputError("--url", asker.base, cure)
    if is_llama_model_list(models) or _parses_as_props(props):
        return
    if isinstance(models, Answer) and models.status in {401, 403}:
        raise _key_error(asker, models.status)
    if isinstance(props, Silence) and isinstance(models, Silence):
        if isinstance(health, Answer) and health.json_or_none == {"status": "ok"}:
            return  # llama-server's own words, and a state worth a diagnosis: nothing but /health answers
        raise _silence_error(asker, health, props, models)
    root = await asker.get("/", _ROOT_S)
    who = who_answers(props, models, root)
    if isinstance(props, Answer) and props.status >= _ERRORS and props.status not in _UNKNOWN_PAGE:
        who += f" (it answers {props.status})"
    raise InvalidInputError("--url", asker.base, f"{ANOTHER_PROGRAM}{who}: only llama-server can be diagnosed")


def _silence_error(asker: Asker, health: Answer | Silence, props: Silence, models: Silence) -> InvalidInputError:
    if isinstance(health, Silence) and is_too_slow(health, props, models):
        return SilentServerError(asker.base, (health, props, models))
    return InvalidInputError("--url", asker.base, f"{_NOTHING_SAID}: {props.words}")


def _check_proxy(asker: Asker, said: Answer) -> None:
    """What llama-server never says, and who stands before it does."""
    wants = said.headers.get("www-authenticate", "").partition(" ")[0].lower()
    if said.status == 401 and wants in _LOGINS:
        why = f"a proxy before it wants a login (401, {wants.capitalize()}), which can't be given here"
    elif said.status == 407:
        why = "a proxy before it wants a login (407), which can't be given here"
    elif said.status == 403 and said.is_page:
        why = "a proxy before it lets nobody in from here (403)"
    elif said.status == 429:
        why = "a proxy before it takes no more questions for now (429)"
    else:
        return
    raise InvalidInputError("--url", asker.base, f"{why}: give the address of the server itself")


def _is_missing(said: Answer | Silence) -> bool:
    return isinstance(said, Answer) and said.status in _UNKNOWN_PAGE


def _check_redirect(asker: Asker, said: Answer) -> None:
    if 300 <= said.status < 400:
        place = _place(said)
        try:
            cure = f"give {base_address(place)}"
        except InvalidInputError:  # to a login, say
            cure = "give the address of the server itself"
        raise InvalidInputError("--url", asker.base, f"it redirects{f' to {place}' if place else ''}: {cure}")


def _check_loading(asker: Asker, said: Answer) -> None:
    if said.status == 503 and b"loading" in said.body[:1000].lower() and not said.is_page:
        cure = "it is still loading its model: ask again when /health says ok (--log FILE shows how far it is)"
        raise InvalidInputError("--url", asker.base, cure)


def _key_error(asker: Asker, status: int) -> InvalidInputError:
    if asker.has_key:
        return WrongKeyError("--api-key-file", None, f"{asker.base} does not accept {KEY_IN_FILE} ({status})")
    cure = f"it wants an API key ({status}): name a file that holds it with --api-key-file FILE"
    return InvalidInputError("--url", asker.base, cure)


def _parses_as_props(said: Answer | Silence) -> bool:
    if isinstance(said, Silence) or said.status != 200:
        return False
    try:
        parse_props(said.json)
    except ValueError:
        return False
    return True


def _place(said: Answer) -> str:
    """Where a redirect leads, without what may be secret in it; empty where that can't be said."""
    place = said.headers.get("location", "").partition("?")[0]
    return place[:200] if place.isprintable() and "@" not in place else ""
