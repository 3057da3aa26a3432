"""env is read as coreutils runs it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.api.env_words import EnvWords, env_words


@pytest.mark.parametrize(
    ("words", "want"),
    [
        ("numactl --membind=0 llama-server", EnvWords()),
        ("env A=1 B=2 llama-server", EnvWords(assigned=((1, "A"), (2, "B")))),
        ("tini -- /usr/bin/env -u A -uB --unset=C --unset D E= llama-server",
         EnvWords(unset=frozenset("ABCD"), assigned=((9, "E"),))),
        ("env - A=1 llama-server", EnvWords(clears=True, assigned=((2, "A"),))),
        ("env -ivu A -- B=1 llama-server", EnvWords(clears=True, unset=frozenset("A"), assigned=((4, "B"),))),
        ("env A=1 env -i B=1 llama-server", EnvWords(clears=True, assigned=((4, "B"),))),
        ("env -C /models --argv0=x llama-server", EnvWords(directory="/models")),
        ("env --chdir=/models llama-server", EnvWords(directory="/models")),
        ("env -vS llama-server", EnvWords(splits=True)),
        ("env --split-string=llama-server", EnvWords(splits=True)),
        ("env -u", EnvWords(unset=frozenset({""}))),
    ],
)  # fmt: skip
def test_options_and_assignments_are_told_from_the_program(words: str, want: EnvWords) -> None:
    assert env_words(words.split()) == want


PIECES = st.sampled_from([["-i"], ["-u", "A"], ["-uB"], ["--unset=A"], ["--unset", "B"], ["-iu", "C"]])
ENDS = st.sampled_from([[], ["--"], ["-"], ["--", "-"]])
SETS = st.sampled_from(["A=1", "B=2", "C=$(X)", "A=", "D=x=y"])


@pytest.mark.skipif(shutil.which("env") is None, reason="there is no env here")
@settings(max_examples=25, deadline=None)
@given(st.lists(PIECES, max_size=3), ENDS, st.lists(SETS, max_size=3))
def test_what_env_makes_of_the_words_is_what_is_read(options: list[list[str]], end: list[str], sets: list[str]) -> None:
    words = ["env", *(word for piece in options for word in piece), *end, *sets]
    before = {"A": "a", "B": "b", "C": "c"}
    program = "import json, os; print(json.dumps({name: os.environ[name] for name in 'ABCD' if name in os.environ}))"
    started = [str(shutil.which("env")), *words[1:], sys.executable, "-c", program]
    told = subprocess.run(started, env=before, capture_output=True, check=True)

    said = env_words(words)

    after = {} if said.clears else {name: value for name, value in before.items() if name not in said.unset}
    after |= {name: words[place].partition("=")[2] for place, name in said.assigned}
    assert json.loads(told.stdout) == after
