"""What a line of llama-server's log is about, decided once for each shape of line.

A shape is a line without its digits, blanks, dots and dashes, so that a gigabyte of log has some hundred of them. The
patterns below are only tried on the first line of each; everything else is counting, which Python does in C.

Time stamps, levels and modules come and go with flags and builds, so a line is ours when it begins as llama.cpp's lines
do, and its message is then searched for the words of a topic. Lines that only debugging prints are counted and nothing
more: prompts are in them. Strings: build 11549 (CPU, captured), llama.cpp's source at b11434 (CUDA), and what older
builds said instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slotune.llama.log_levels import DEBUG, LETTERS, level_of
from slotune.llama.log_mark_words import HEADER_WORDS, HOT_WORDS, MARK_WORDS, Hot, Mark
from slotune.llama.log_old_builds import is_old_work, old_line
from slotune.llama.log_origin import is_of_engine, is_of_server
from slotune.llama.log_story import LONGEST, Topic
from slotune.llama.log_topic_words import TOPIC_WORDS

__all__ = [
    "DEBUG",
    "NOTHING",
    "Hot",
    "LineKind",
    "Mark",
    "Shapes",
    "classify",
    "quote",
    "quote_debug",
    "says",
    "shape_of",
]

_DROPPED = b"0123456789 .-\t"
_SHAPE_BYTES = 400
"""llama-server's own lines have shorter shapes; of a longer one, a prompt for example, the beginning decides."""
_SHAPES = 20_000
"""Shapes that are remembered: 8 MB at most. A log that shows prompts has a new one in each line."""


@dataclass(frozen=True, slots=True)
class LineKind:
    """What is known of all lines of a shape."""

    ours: bool = False
    """llama-server, or llama.cpp inside it, wrote it."""
    level: int = 0
    """Least ``-lv`` that prints it, as today's builds count; 0 when that is not known."""
    topics: tuple[Topic, ...] = ()
    mark: Mark | None = None
    header: str = ""
    """Which of the headers it is."""
    hot: Hot | None = None
    alive: bool = False
    """A server that says this works on."""
    of_server: bool = False
    """Only llama-server says so; other programs that llama.cpp is in say the rest too."""
    of_engine: bool = False
    """Only llama.cpp says so, in whatever program."""
    router: bool = False
    """Only llama-server's router says so, which loads no model and starts a server for each."""
    old: bool = False
    """Written as builds until September 2024 did."""


NOTHING = LineKind()

_STAMP = rb"\.*(?:\d+\.\d\d\.\d{3}\.\d{3} |\d{10,} |\[\d{4}-\d\d-\d\d[^\]]*\] )?"
_LEVEL = rb"(?:([IWEDT]) )?"
_PREFIX = re.compile(_STAMP + _LEVEL)
_OURS = re.compile(
    rb"(?:slot|srv|que|res|spec|cmn|mtmd|clip) +[\w~():]+ ?: "  # the server's own: a module and a function
    rb"|(?:~?[A-Za-z]\w*_\w+|main|load|~Server|init|Device \d+|decode|warmup|build|system[ _]info)(?:\(\))?: "
    rb"|(?:warning|error): (?=no usable GPU|invalid argument|error while|unknown argument|Insufficient Memory \()"
    rb"|error: (?=--model is required|invalid parameter for argument|either --embedding|the supplied chat template"
    rb"|failed to (?:get|download|fetch) )|(?:\S*/)?llama-server: (?:error while loading shared libraries: "
    rb"|\S+: version `[^'\n]+' not found \(required by )"
    rb"|warning: (?=failed to (?:mlock|VirtualLock) )"
    rb"|error while handling (?:argument|environment variable) "
    rb"|using config file: |slotune engine: |(?:\S*: ?)?GGML_ASSERT[(:]|GGML_ABORT"
    rb"| *current device: -?\d+, in function |terminate called after throwing"
    rb"|(?:\S*: | *)(?:CUDA|ROCm|HIP|MUSA|SYCL) error\b"
    rb"|(?:prompt |      )? *eval time = +[\d.]+ ms / |draft acceptance"
    rb"|(?:image|audio)(?: slice|/slice)? (?:en|de)coded\b"
    rb"|build: \d+ \(|couldn't bind to server socket: |llama server listening|HTTP server"
    rb"|slot \d+ (?:is processing \[|released \(|: )"
)

_WORDS = tuple((topic, re.compile(words)) for topic, words in TOPIC_WORDS)

_ROUTER = re.compile(
    rb"starting (?:server in router mode|router server, )|router server is listening"
    rb"|spawning server instance with name=|failed to initialize router models"
)

_ALIVE = (Hot.PROMPT, Hot.GENERATION, Hot.STOP, Hot.WORK, Hot.RUNNING, Hot.OLD)
_OLD_SLOT = re.compile(rb"slot \d+ (?:is processing|released)")
_SUMMARY = re.compile(rb"llama_(?:print_timings|perf_\w+): ")
"""The same numbers as llama-cli and bindings print them, of a whole run."""

_DEBUG = re.compile(
    rb"que +\w+: (?:processing new tasks|update slots|waiting for new tasks|new task, id|processing task, id)"
    rb"|res +\w+: (?:add task|remove task|sending result|task id)"
    rb"|slot decode token, id=|n_gen = \d+, n_remaining = |run slots completed|posting NEXT_RESPONSE"
    rb"|update_slots: decoding batch"
    rb"|max possible draft: |http: streamed chunk|converted request: |log_server_request: re(?:quest|sponse): "
)
"""What only debugging prints; where a line has its level, the level is believed."""


def shape_of(text: bytes) -> bytes:
    """The shape of a line, or the shapes of many lines, still parted by line ends."""
    return text.translate(None, _DROPPED)


def classify(line: bytes) -> LineKind:
    """What ``line`` is, without its line end, colours and the prefixes of whoever kept it."""
    if (old := old_line(line)) is not None:
        return _old_kind(old.letter, old.message)
    prefix = _PREFIX.match(line)
    letter = prefix[1] if prefix else None
    message = line[prefix.end() :] if prefix else line
    if not _OURS.match(message):
        return NOTHING
    if letter == b"D" or (letter is None and _DEBUG.search(message)):
        return LineKind(ours=True, level=DEBUG, topics=(Topic.DEBUG_LINE,))
    message = _own_words(message)
    hot = None if _SUMMARY.match(message) else next((kind for kind, words in HOT_WORDS if words.search(message)), None)
    old_work, begins = is_old_work(message) if _OLD_SLOT.match(message) else (False, False)
    return LineKind(
        ours=True,
        level=level_of(letter, message),
        topics=_topics(message),
        mark=Mark.WORK if begins else _mark(message),
        header=_header(message),
        hot=Hot.OLD if old_work else hot,
        alive=old_work or hot in _ALIVE,
        of_server=is_of_server(message),
        of_engine=is_of_engine(message),
        router=_ROUTER.search(message) is not None,
        old=old_work,
    )


def _old_kind(letter: bytes, message: bytes) -> LineKind:
    if letter == b"D":
        return LineKind(ours=True, level=DEBUG, topics=(Topic.DEBUG_LINE,), of_server=True, old=True)
    hot, begins = is_old_work(message)
    return LineKind(
        ours=True,
        level=LETTERS[letter],
        topics=_topics(message),
        mark=Mark.WORK if begins else _mark(message),
        header=_header(message),
        hot=Hot.OLD if hot else None,
        alive=hot,
        of_server=True,
        of_engine=True,
        old=True,
    )


def _topics(message: bytes) -> tuple[Topic, ...]:
    return tuple(topic for topic, words in _WORDS if words.search(message))


def _header(message: bytes) -> str:
    return next((name for name, words in HEADER_WORDS if words.search(message)), "")


def _mark(message: bytes) -> Mark | None:
    if _header(message):
        return Mark.HEADER
    return next((mark for mark, words in MARK_WORDS if words.search(message)), None)


def _own_words(message: bytes) -> bytes:
    """``message`` up to where it repeats something, such as the answer to a request that it refused."""
    return b"" if b"got exception" in message else message.partition(b"{")[0].partition(b'"')[0]


class Shapes:
    """Remembers what each shape is. One serves all servers of a log."""

    def __init__(self) -> None:
        self._kinds: dict[bytes, LineKind] = {}
        self.hot: dict[bytes, Hot] = {}
        """Only of shapes with numbers to add up."""
        self.router: set[bytes] = set()
        """Shapes of what only a router says."""

    def learn(self, shapes: Iterable[bytes], lines: Sequence[bytes], of_lines: Sequence[bytes]) -> None:
        """Classify what is new in ``shapes`` by the first of ``lines`` that has it; ``of_lines`` has each line's."""
        if len(self._kinds) > _SHAPES:
            self._kinds.clear()
            self.hot.clear()
            self.router.clear()
        new = {key for shape in shapes if (key := shape[:_SHAPE_BYTES]) not in self._kinds}
        if not new:
            return
        for line, shape in zip(lines, of_lines, strict=True):
            key = shape[:_SHAPE_BYTES]
            if key in new:
                new.discard(key)
                kind = self._kinds[key] = classify(line)
                if kind.hot is not None and key == shape:
                    self.hot[key] = kind.hot
                if kind.router:
                    self.router.add(shape)
                if not new:
                    return

    def __getitem__(self, shape: bytes) -> LineKind:
        return self._kinds[shape[:_SHAPE_BYTES]]


def says(line: bytes, words: re.Pattern[bytes]) -> bool:
    """Whether ``line`` itself says ``words``, rather than repeats them."""
    if (old := old_line(line)) is not None:
        return old.letter != b"D" and words.search(old.message) is not None
    prefix = _PREFIX.match(line)
    return words.search(_own_words(line[prefix.end() :] if prefix else line)) is not None


def quote(line: bytes) -> str:
    """``line`` as it is shown to people: no time stamp, no level, at most :data:`LONGEST` characters."""
    if (old := old_line(line)) is not None:
        message = old.shown
    else:
        prefix = _PREFIX.match(line)
        message = line[prefix.end() :] if prefix else line
    return message[: 4 * LONGEST].decode("utf-8", errors="replace").strip()[:LONGEST]


def quote_debug(line: bytes) -> str:
    """A line that only debugging prints, without its message: that may be a prompt."""
    prefix = _PREFIX.match(line)
    message = line[prefix.end() :] if prefix else line
    known, module = _DEBUG.search(message), _OURS.match(message)
    shown = known[0] if known else module[0] if module else b""
    return f"{shown.decode('utf-8', errors='replace').strip()[:LONGEST]} …"
