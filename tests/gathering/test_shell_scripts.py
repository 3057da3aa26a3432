"""What a shell would start is read as if it stood there without one; what only the shell knows is left as written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.api.kubernetes_types import Container, PodTemplate
from slotune.gathering.command_words import server_flags
from slotune.gathering.shell_scripts import without_shell
from slotune.tuning.pod_reading import read_pod


def shell(script: str, *more: str, start: tuple[str, ...] = ("sh", "-c"), **fields: Any) -> Container:
    return Container.model_validate({"name": "llama", "command": [*start, script, *more], **fields})


def command(script: str, *more: str, **fields: Any) -> list[str] | None:
    """The command line without its shell; None: it is left alone."""
    own = shell(script, *more, **fields)
    found = without_shell(own)
    return None if found is own else list(found.command or ())


def flags(own: Container, maps: dict[str, dict[str, str]] | None = None) -> tuple[str, ...]:
    found = without_shell(own)
    template = PodTemplate.model_validate({"spec": {"containers": [{"name": "llama"}]}})
    return server_flags(found, read_pod(template, found, maps or {}))


PLAIN = ["llama-server", "-m", "a.gguf", "-c", "4096"]


@pytest.mark.parametrize(
    "script",
    [
        "llama-server -m a.gguf -c 4096",
        "exec llama-server -m a.gguf -c 4096",
        "llama-server -m 'a.gguf' -c \"4096\"",
        "llama-server \\\n  -m a.gguf \\\n  -c 4096\n",
        "set -e; ulimit -l unlimited; exec llama-server -m a.gguf -c 4096",
        "mkdir -p /cache && llama-server -m a.gguf -c 4096 2>&1 | tee /tmp/log",
        "llama-server -m a.gguf -c 4096 >/proc/1/fd/1 2>/dev/null &\nwait",
        "# the server\nllama-server -m a.gguf -c 4096 # of today",
        "if [ -f a.gguf ]; then exec llama-server -m a.gguf -c 4096; fi",
        "(cd /models && llama-server -m a.gguf -c 4096)",
        "while true; do llama-server -m a.gguf -c 4096; sleep 1; done",
        "llama-server --version; llama-server -m a.gguf -c 4096",
        "M=a.gguf\nexec -a server llama-server -m $M -c ${CTX:-4096}",
        "command -v llama-server; nohup llama-server -m a.gguf -c 4096",
    ],
)
def test_the_command_that_starts_the_server_is_found(script):
    assert command(script) == PLAIN


@pytest.mark.parametrize(
    "start",
    [
        ("/bin/bash", "-lc"),
        ("bash", "-e", "-o", "pipefail", "-c"),
        ("bash", "-euo", "pipefail", "-c"),
        ("tini", "--", "sh", "-c"),
        ("busybox", "sh", "-c"),
        ("bash", "--login", "-c"),
    ],
)
def test_any_way_to_give_a_shell_a_script_is_known(start):
    assert command("llama-server -m a.gguf -c 4096", start=start) == PLAIN


def test_the_script_may_stand_in_args():
    own = Container(name="llama", command=("sh", "-c"), args=("llama-server -m a.gguf -c 4096",))
    assert flags(own) == ("-m", "a.gguf", "-c", "4096")
    assert flags(Container(name="llama", args=("sh", "-c", "llama-server -m a"))) == ("-m", "a")


@pytest.mark.parametrize(
    "script",
    [
        "/start.sh",
        "python -m llama_cpp.server --model a",
        "llama-server -m a & llama-server -m b",
        "echo llama-server",
        "llama-server -m 'a",
        "cat <<EOF > x\nllama-server -m a\nEOF\n./x",
        "llama-server -m $(cat name",
    ],
)
def test_what_is_not_one_server_for_certain_is_left_alone(script):
    assert command(script) is None
    assert flags(shell(script)) == ()


def test_a_command_line_without_a_shell_is_left_alone():
    for own in (
        Container(name="llama", args=("-m", "a")),
        Container(name="llama", command=("llama-server", "--alias", "sh", "-c", "4")),
        Container(name="llama", command=("sh", "start.sh")),
    ):
        assert without_shell(own) is own


def test_variables_are_put_in_where_they_are_known_and_stay_references_where_not():
    env = [{"name": "CTX", "value": "8192"}, {"name": "MORE", "value": "-np 4 --metrics"}]
    assert command('llama-server -c "$CTX" ${MORE} -m $NONE', env=env) == [
        "llama-server", "-c", "8192", "-np", "4", "--metrics", "-m", "$(NONE)",
    ]  # fmt: skip
    own = shell("llama-server -c $SIZE -m $(MODEL)", envFrom=[{"configMapRef": {"name": "settings"}}])
    assert flags(own, {"settings": {"SIZE": "512", "MODEL": "b"}}) == ("-c", "512", "-m", "b")


def test_what_only_the_shell_knows_stays_as_it_is_written():
    assert command("llama-server -t $(nproc --all) -m `cat name` -c $((4 * 1024))") == [
        "llama-server", "-t", "$(nproc --all)", "-m", "`cat name`", "-c", "$((4 * 1024))",
    ]  # fmt: skip
    fields: dict[str, Any] = {"envFrom": [{"configMapRef": {"name": "s"}}]}
    assert command("llama-server -c ${CTX:-4096}", **fields) == ["llama-server", "-c", "${CTX:-4096}"]
    assert command("if x; then N=1; else N=2; fi; llama-server -np $N") == ["llama-server", "-np", "$(N)"]
    assert command("llama-server --prompt '$HOME'") == ["llama-server", "--prompt", "$HOME"]


def test_arguments_of_the_script_are_those_of_the_server():
    assert command('exec llama-server "$@"', "--", "-m", "a.gguf", "-c", "4096") == PLAIN


def test_what_the_script_sets_for_the_server_is_its_environment():
    assert flags(shell("LLAMA_ARG_N_PARALLEL=3 llama-server -m a")) == ("--parallel", "3", "-m", "a")
    assert flags(shell("export LLAMA_ARG_N_PARALLEL=3; exec llama-server -m a")) == ("--parallel", "3", "-m", "a")
    assert flags(shell("LLAMA_ARG_N_PARALLEL=3; llama-server -m a")) == ("-m", "a")


def test_a_key_in_a_script_is_not_shown():
    assert "open sesame" not in str(flags(shell("llama-server -m a --api-key 'open sesame'")))
    assert "sesame" not in str(flags(shell("llama-server --api-key $KEY", env=[{"name": "KEY", "value": "sesame"}])))


@given(st.text(alphabet="ab $\"'`\\(){}<>|&;#\n=-@*", max_size=40))
def test_no_script_is_an_error(script):
    without_shell(shell(f"llama-server {script}" if script else "x"))


@given(st.lists(st.text(alphabet="abc -=$'\"\\#;&", max_size=6), max_size=5))
def test_words_in_quotes_come_out_as_they_are(words):
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    if not any(word in {"-h", "$@"} for word in words):
        assert command(f"llama-server {quoted}") == ["llama-server", *words]
