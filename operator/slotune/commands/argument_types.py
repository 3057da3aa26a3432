"""What a word of the command line may look like. Imports little: the parser is made for every command."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

__all__ = ["deployment", "folder", "image", "namespace", "not_empty", "object_name", "port", "positive"]


def not_empty(text: str) -> str:
    """A file or a folder, or ``-``."""
    if not text:
        raise argparse.ArgumentTypeError("is empty: name a file or a folder")
    return text


def image(text: str) -> str:
    """An image, with or without a tag."""
    if not text or text.split() != [text]:
        raise argparse.ArgumentTypeError(f"is {text!r}: an image is needed, such as registry.example.com/slotune:1.0")
    return text


def namespace(text: str) -> str:
    """A namespace of Kubernetes."""
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(
            f"is {text!r}: a namespace is needed, up to 63 small letters, digits and dashes"
        )
    return text


def object_name(text: str) -> str:
    """The name of an object of Kubernetes."""
    if len(text) > 253 or not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(f"is {text!r}: a name is needed, of small letters, digits, dashes and dots")
    return text


def deployment(text: str) -> str:
    """The name of a Deployment, alone or as kubectl prints it."""
    kind, slash, name = text.rpartition("/")
    if slash and kind.partition(".")[0].lower() not in {"deploy", "deployment", "deployments"}:
        raise argparse.ArgumentTypeError(
            f"is {text!r}: only a Deployment is looked at in one go; elsewhere take its log: "
            "kubectl logs … | slotune diagnose --log -"
        )
    return object_name(name)


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"is {text}: a whole number of at least 1 is needed")
    return int(text)


def port(text: str) -> int:
    """A TCP port."""
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"is {text}: a port from 1 to 65535 is needed")
    return int(text)


def folder(text: str) -> Path:
    """A folder, which need not be there yet."""
    return Path(not_empty(text))
