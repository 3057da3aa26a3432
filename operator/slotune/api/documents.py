"""YAML text to plain data, the way the Kubernetes tools read it, with the line of every field.

PyYAML's own loaders keep the last of two equal keys and forget where a value stood. So the nodes come from PyYAML (its
parser is the strict part) and are turned into data here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from slotune.api.problems import Location, Problem
from slotune.api.yaml_dialect import Loader, NotJSONError, scalar_value

__all__ = ["MOST_BYTES", "Document", "read_documents", "without_lists"]

MOST_BYTES: Final = 32 * 1024 * 1024
"""Of one file. A ConfigMap holds at most 1 MiB, so this is a folder's worth."""
_MOST_NODES: Final = 500_000
"""Values in one document, aliases counted each time: a few nested anchors could make billions."""
_DEEPEST: Final = 64


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document that is a mapping."""

    file: str
    data: dict[str, Any]
    lines: dict[Location, int]
    """Line (from 1) of each key and list element, by its location."""

    def line(self, location: Location) -> int:
        """Line of the field, or of the nearest thing around it that is there."""
        for length in range(len(location), -1, -1):
            if location[:length] in self.lines:
                return self.lines[location[:length]]
        return 1

    def below(self, key: str, index: int) -> Document:
        """An element of a list as a document of its own."""
        lines = {place[2:]: line for place, line in self.lines.items() if place[:2] == (key, index)}
        return Document(self.file, self.data[key][index], lines)


class _EndlessError(Exception):
    """The document would never end, or hardly."""


def read_documents(file: str, content: bytes) -> tuple[list[Document], list[Problem]]:
    """The documents of one file and what is wrong with it. Empty documents are skipped, an empty file is a problem."""
    if len(content) > MOST_BYTES:
        cure = f"has {len(content):,} bytes, at most {MOST_BYTES:,} are read: put prompts in a file of their own"
        return [], [Problem(cure, file=file)]
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return [], [Problem(f"is not UTF-8 (byte {error.start}): save it as UTF-8", file=file, line=line)]
    documents: list[Document] = []
    problems: list[Problem] = []
    try:
        for node in yaml.compose_all(text, Loader=Loader):
            reader = _Reader(file)
            document = reader.document(node)
            documents += [] if document is None else [document]
            problems += reader.problems
    except (yaml.YAMLError, RecursionError) as error:
        problems.append(_syntax_problem(file, text, error))
    if not documents and not problems:
        problems.append(Problem("is empty: there is no YAML document in it", file=file))
    return documents, problems


def without_lists(documents: Iterable[Document]) -> Iterator[Document]:
    """The documents, with every ``kind: List`` (as kubectl get writes it) replaced by what is in it."""
    for document in documents:
        items = document.data.get("items")
        if document.data.get("kind") == "List" and isinstance(items, list):
            yield from (document.below("items", index) for index, item in enumerate(items) if isinstance(item, dict))
        else:
            yield document


class _Reader:
    """Turns the nodes of one document into data, and keeps what is well-formed YAML but means nothing here."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[Location, int] = {}
        self.problems: list[Problem] = []
        self.nodes = 0

    def document(self, node: yaml.Node | None) -> Document | None:
        if node is None or (isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")):
            return None
        if not isinstance(node, yaml.MappingNode):
            self.refuse("is not a Kubernetes object: a mapping with apiVersion, kind and metadata is needed", node, ())
            return None
        try:
            data = self._mapping(node, ())
        except _EndlessError:
            self.refuse("is nested too deeply, or repeats itself through its anchors without end", node, ())
            return None
        return Document(self.file, data, {(): _line(node)} | self.lines)

    def refuse(self, cure: str, node: yaml.Node, location: Location) -> None:
        self.problems.append(Problem(cure, _readable_path(location), file=self.file, line=_line(node)))

    def _read(self, node: yaml.Node, location: Location) -> Any:
        self.nodes += 1
        if self.nodes > _MOST_NODES or len(location) > _DEEPEST:
            raise _EndlessError
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, location)
        if isinstance(node, yaml.SequenceNode):
            return self._sequence(node, location)
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node, location)

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        self._check_tag(node, "map", location)
        data: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag.endswith(":merge"):
                merged = self._merged(value_node, location) | merged
            elif not isinstance(key_node, yaml.ScalarNode) or key_node.tag.endswith(":null"):
                cure = "has a key that is no text; if this is a template, render it first, as helm template does"
                self.refuse(cure, key_node, location)
            elif (key := str(key_node.value)) in lines:
                self.refuse(f"stands twice, here and on line {lines[key]}: remove one", key_node, (*location, key))
            else:
                lines[key] = self.lines[*location, key] = _line(key_node)
                data[key] = self._read(value_node, (*location, key))
        return merged | data

    def _merged(self, node: yaml.Node, location: Location) -> dict[str, Any]:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for source in sources:
            data = self._read(source, location)
            if isinstance(data, dict):
                merged = data | merged
            else:
                self.refuse("merges (<<) something that is not a mapping", source, location)
        return merged

    def _sequence(self, node: yaml.SequenceNode, location: Location) -> list[Any]:
        self._check_tag(node, "seq", location)
        items = []
        for index, item in enumerate(node.value):
            self.lines[*location, index] = _line(item)
            items.append(self._read(item, (*location, index)))
        return items

    def _scalar(self, node: yaml.ScalarNode, location: Location) -> Any:
        try:
            return scalar_value(node.tag, str(node.value))
        except NotJSONError:
            self.refuse("is not a number that JSON knows", node, location)
        except KeyError:
            self._refuse_tag(node, location)
        return str(node.value)

    def _check_tag(self, node: yaml.Node, kind: str, location: Location) -> None:
        if node.tag != f"tag:yaml.org,2002:{kind}":
            self._refuse_tag(node, location)

    def _refuse_tag(self, node: yaml.Node, location: Location) -> None:
        self.refuse("carries a YAML tag (!), which Kubernetes does not know: remove it", node, location)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _readable_path(location: Location) -> str:
    """The path, cut at the first key that is no word: in broken YAML a key may be a piece of a prompt."""
    path: list[str] = []
    for part in location:
        if isinstance(part, str) and not re.fullmatch(r"[A-Za-z0-9._/-]{1,63}", part):
            break
        path.append(f"[{part}]" if isinstance(part, int) else f".{part}")
    return "".join(path).lstrip(".")


def _syntax_problem(file: str, text: str, error: Exception) -> Problem:
    """What the parser says, without the snippet of text that it likes to quote: that may be a prompt or a secret."""
    said = str(getattr(error, "problem", None) or "it can't be read")
    mark = getattr(error, "problem_mark", None)
    if "end of stream" in said:  # where the unfinished thing begins tells more than where the file ends
        mark = getattr(error, "context_mark", None) or mark
    line = None if mark is None else mark.line + 1
    lines = text.split("\n")
    source = "" if line is None or line > len(lines) else lines[line - 1]
    if "\t" in source[: len(source) - len(source.lstrip())] or "'\t'" in said:
        cure = "is not YAML: the line is indented with a tab: use spaces"
    elif "{{" in text:
        cure = (
            f"is not YAML ({_without_quotes(said)}). It looks like a template: render it first, as helm template does"
        )
    else:
        cure = f"is not YAML ({_without_quotes(said)}): check the indentation and the quotes of this line"
    return Problem(cure, file=file, line=line)


def _without_quotes(said: str) -> str:
    """Keeps single characters and the parser's own ``<names>``."""
    return re.sub(r"'([^'])'|'([^']*)'", lambda m: m[0] if m[1] or m[2].startswith("<") else "something", said)
