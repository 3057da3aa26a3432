"""``slotune diagnose``: input that can't be used gets one clear word and exit code 2; whatever is found, it is 0."""

from __future__ import annotations

import asyncio
import functools
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from bench.mock_server import MockServer, Received, Script
from bench.mock_server import document as answered
from slotune.cli import main, make_parser
from slotune.commands import diagnose as command
from slotune.diagnose.catalogue import ENTRIES
from slotune.gathering.server import look_at
from tests.commands.manifests import manifest
from tests.gathering.standing_in import METRICS, MODELS, PROPS, SECRET, SILENCE, page, said, stand_in
from tests.tiny_models import write_tiny_model

LOG = Path(__file__).resolve().parents[1] / "llama" / "logs" / "all_defaults.log"
"""Of a real server with everything at its defaults."""


@contextmanager
def serving(server: MockServer) -> Iterator[str]:
    """Its address; it answers from a thread of its own, so that a command can run in this one."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
        yield server.url
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is said of input that can't be used: on one line, and nothing is printed beside it."""
    assert main(["diagnose", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Traceback" not in shown.err
    assert shown.err.startswith("slotune: ")
    assert shown.err.count("\n") == 1
    return shown.err


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert main(["diagnose", *arguments, "-o", "json"]) == 0
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    return json.loads(shown.out)


# What does not go together


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param([], ["--url", "--log", "--deployment"], id="nowhere to look"),
        pytest.param(
            ["--deployment", "chat", "--url", "http://127.0.0.1:1"], ["--url", "--deployment"], id="a URL too"
        ),
        pytest.param(["--deployment", "chat", "--log", "x.log"], ["--log", "--deployment"], id="a log too"),
        pytest.param(["--log", "x.log", "--probe"], ["--probe", "--url"], id="a probe of a log"),
        pytest.param(["--log", "x.log", "--api-key-file", "key"], ["--api-key-file", "--url"], id="a key for a log"),
        pytest.param(["--log", "x.log", "--watch", "60"], ["--watch", "--url"], id="a log that is watched"),
        pytest.param(["--log", "x.log", "-n", "chat"], ["--namespace", "--deployment"], id="a namespace for a log"),
        pytest.param(["--log", "x.log", "--context", "home"], ["--context", "--deployment"], id="a context for a log"),
        pytest.param(["--log", "-", "-f", "-"], ["--file", "standard input"], id="two things on standard input"),
        pytest.param(["--log", "x.log", "--gpu-class", "gold"], ["--gpu-class", "-f"], id="a class of no manifest"),
        pytest.param(["--log", "x.log", "--name", "chat"], ["--name", "-f"], id="a name of no manifest"),
        pytest.param(["--log", "x.log", "--bandwidth", "fast"], ["--bandwidth", "fast", "300G"], id="no number"),
        pytest.param(["--log", "x.log", "--bandwidth", "nan"], ["--bandwidth", "nan"], id="a bandwidth of nan"),
        pytest.param(["--log", "x.log", "--price-per-hour", "0"], ["--price-per-hour", "above 0"], id="no price"),
        pytest.param(["--log", "x.log", "--price-per-hour", "1e300"], ["without an exponent", "0.80"], id="1e300"),
        pytest.param(["--log", "x.log", "--bandwidth", "1e300"], ["without an exponent", "300G"], id="300 digits"),
        pytest.param(["--log", "x.log", "--bandwidth", "-3G"], ["--bandwidth is -3G", "above 0"], id="below 0"),
        pytest.param(["--log", "x.log", "--bandwidth", "300Gb/s"], ["bits", "300GB/s"], id="bits"),
        pytest.param(["--log", "a.log", "--log", "b.log"], ["--log", "2 times", "cat A B"], id="two logs"),
    ],
)
def test_options_that_do_not_go_together_are_refused_with_what_to_do(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(capsys, *arguments)
    assert [word for word in words if word not in line] == [], line


# Logs


def test_a_log_of_another_program_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "nginx.log"
    file.write_text('10.0.0.1 - - [30/Nov/2026:03:08:55 +0000] "GET / HTTP/1.1" 200 612 "-" "curl/8.5"\n' * 20)
    line = refused(capsys, "--log", str(file))
    assert "llama-server" in line
    assert "nginx.log" in line


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"", ["empty.log", "holds nothing"], id="empty"),
        pytest.param(b"\n \n\n", ["holds nothing"], id="blank"),
        pytest.param(bytes(range(256)) * 64, ["llama-server"], id="no text at all"),
    ],
)
def test_a_log_that_says_nothing_is_refused(
    content: bytes, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.log").write_bytes(content)
    line = refused(capsys, "--log", str(tmp_path / "empty.log"))
    assert [word for word in words if word not in line] == [], line


def test_a_log_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "missing.log" in refused(capsys, "--log", str(tmp_path / "missing.log"))
    assert str(tmp_path) in refused(capsys, "--log", str(tmp_path))


def test_a_healthy_log_has_nothing_to_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "--log", str(LOG)]) == 0
    shown = capsys.readouterr()
    assert "nothing to change" in shown.out
    assert "Checklist" in shown.out
    assert shown.err == ""


def test_a_log_that_is_cut_off_in_a_line_still_says_what_it_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = LOG.read_bytes()
    file = tmp_path / "cut.log"
    file.write_bytes(whole[: len(whole) * 2 // 3])
    (server,) = document(capsys, "--log", str(file))["servers"]
    assert server["looked_at"]["log"]["starts"] == 1


def test_colours_in_a_log_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    coloured = "".join(f"\x1b[32m{line}\x1b[0m\n" for line in LOG.read_text().splitlines())
    (tmp_path / "colours.log").write_text(coloured)
    with_colours = document(capsys, "--log", str(tmp_path / "colours.log"))["servers"][0]
    without = document(capsys, "--log", str(LOG))["servers"][0]
    assert with_colours["checklist"] == without["checklist"]
    assert "\\u001b" not in json.dumps(with_colours)


def two_pods() -> str:
    """Two pods' lines in turns, as ``kubectl logs --prefix -l`` prints them."""
    lines = LOG.read_text().splitlines()
    return "".join(f"[pod/chat-{name}/server] {line}\n" for line in lines for name in ("a1", "b2"))


def test_the_pods_of_one_log_get_a_block_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "both.log").write_text(two_pods())
    servers = document(capsys, "--log", str(tmp_path / "both.log"))["servers"]
    assert [server["name"].rpartition("-")[2][:2] for server in servers] == ["a1", "b2"]
    assert main(["diagnose", "--log", str(tmp_path / "both.log")]) == 0
    assert capsys.readouterr().out.count("Checklist") == 2


def test_the_log_of_two_pods_can_not_be_that_of_one_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "both.log").write_text(two_pods())
    line = refused(capsys, "--log", str(tmp_path / "both.log"), "--url", "http://127.0.0.1:1")
    assert "2 servers" in line
    assert "b2" in line


def test_output_of_nvidia_smi_is_not_spread_over_several_servers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "both.log").write_text(two_pods())
    smi = tmp_path / "smi.csv"
    smi.write_text("name, clocks.sm [MHz], temperature.gpu\nNVIDIA L4, 2040 MHz, 61\n")
    line = refused(capsys, "--log", str(tmp_path / "both.log"), "--nvidia-smi", str(smi))
    assert "one machine" in line


# Servers


def test_an_address_where_nothing_listens_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(stand_in()) as url:
        pass
    assert url in refused(capsys, "--url", url)


def nginx(_: Received) -> Script:
    return answered("<html><title>Welcome to nginx!</title></html>", content_type="text/html")


def test_a_server_that_is_not_llama_server_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(MockServer(nginx)) as url:
        assert "llama-server" in refused(capsys, "--url", url)


@pytest.mark.parametrize(
    "url",
    [
        *("", "127.0.0.1:8080", "ftp://127.0.0.1", "http://", "http://user:pw@127.0.0.1"),
        *("http://127.0.0.1:99999", "http://127.0.0.1:65536", "http://127.0.0.1:abc", "http://127.0.0.1:-1"),
        *("http://[::1", "http://127.0.0.1:0"),
    ],
)
def test_what_is_no_address_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "--url", url)
    assert "--url" in line
    assert "pw" not in line


def locked(received: Received) -> Script:
    if received.path == "/health":
        return said({"status": "ok"})
    if b"bearer right" not in received.head.lower():
        return said({"error": {"code": 401, "type": "authentication_error"}}, "401 Unauthorized")
    return {"/props": said(PROPS), "/v1/models": said(MODELS)}.get(received.path, page(METRICS))


def test_a_key_that_is_missing_wrong_or_unreadable_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right, wrong, empty = tmp_path / "right", tmp_path / "wrong", tmp_path / "empty"
    right.write_text("right\n")
    wrong.write_text("wr0ng")
    empty.write_text("\n")
    (tmp_path / "notepad").write_bytes(b"\xef\xbb\xbfright\r\n")
    (tmp_path / "model").write_text("right" * 1000)
    with serving(MockServer(locked)) as url:
        assert "--api-key-file" in refused(capsys, "--url", url)
        line = refused(capsys, "--url", url, "--api-key-file", str(wrong))
        assert f"--api-key-file is {wrong}: {url} does not accept the key in it" in line
        assert "wr0ng" not in line
        assert "is empty" in refused(capsys, "--url", url, "--api-key-file", str(empty))
        assert "can't be read" in refused(capsys, "--url", url, "--api-key-file", str(tmp_path / "none"))
        assert "longer than any key" in refused(capsys, "--url", url, "--api-key-file", str(tmp_path / "model"))
        assert "longer than any key" in refused(capsys, "--url", url, "--api-key-file", "/dev/zero")
        assert document(capsys, "--url", url, "--api-key-file", str(tmp_path / "notepad"))["servers"][0]["name"] == url
        assert document(capsys, "--url", url, "--api-key-file", str(right))["servers"][0]["name"] == url


@pytest.mark.parametrize(
    "metrics",
    [
        pytest.param({"kv_cache_usage_ratio": 0.5, "requests_processing": 1}, id="an old page"),
        pytest.param(dict.fromkeys(METRICS, "nan"), id="a page of nan"),
        pytest.param({"requests_processing": "-nan", "prompt_tokens_seconds": "inf"}, id="a page of -nan and inf"),
        pytest.param({"go_goroutines": 7}, id="a page of another program"),
    ],
)
def test_odd_metrics_are_named_and_the_rest_is_looked_at(
    metrics: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(stand_in({"/metrics": page(metrics)})) as url:
        shown = document(capsys, "--url", url)
    (server,) = shown["servers"]
    assert "/metrics" in server["looked_at"]["server"]["refused"]
    assert server["looked_at"]["server"]["slots"] == 2
    assert "NaN" not in json.dumps(shown)
    assert "Infinity" not in json.dumps(shown)


def test_a_server_is_only_read_unless_a_probe_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    server = stand_in()
    with serving(server) as url:
        shown = document(capsys, "--url", url)
    assert {received.method for received in server.requests} == {"GET"}
    assert shown["servers"][0]["looked_at"]["probe"] is None
    assert SECRET not in json.dumps(shown)


IDLE = {**METRICS, "requests_processing": 0, "requests_deferred": 0}
STEADY = {**PROPS, "chat_template": "{% for m in messages %}{{ m }}{% endfor %}"}


def test_an_idle_server_that_is_well_fits_on_a_screen_and_is_not_called_healthy_by_its_address_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with serving(stand_in({"/metrics": page(IDLE), "/props": said(STEADY)})) as url:
        assert main(["diagnose", "--url", url]) == 0
        short = capsys.readouterr().out
        assert main(["diagnose", "--url", url, "--all"]) == 0
        whole = capsys.readouterr().out
        (server,) = document(capsys, "--url", url)["servers"]
    assert len(short.splitlines()) <= 25
    assert max(map(len, (short + whole).splitlines())) <= 100
    assert server["healthy"] is None
    assert "nothing to change in what was looked at" in " ".join(short.split())
    assert "but that is less than half, so it is not called healthy" in " ".join(short.split())
    unseen = " ".join(short.partition("not looked at")[2].partition("\n\n")[0].split())
    assert unseen.startswith("GPU, Kernels, ")
    first = short.partition("What would decide more\n")[2].splitlines()[0]
    assert first.startswith("   --log FILE (from its start on, -lv 4, with requests in it): up to ")
    assert "is the GPU used, and for all layers?" in whole
    assert len(server["checklist"]) == 15


def test_findings_do_not_change_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """Nine requests wait in both looks, while both slots are busy."""
    slots = [{"id": n, "n_ctx": 4096, "is_processing": True, "id_task": n} for n in range(2)]
    busy = {**METRICS, "requests_processing": 2, "requests_deferred": 9, "n_busy_slots_per_decode": 2}
    with serving(stand_in({"/slots": said(slots), "/metrics": page(busy)})) as url:
        shown = document(capsys, "--url", url)
        assert main(["diagnose", "--url", url]) == 0
    assert not shown["healthy"]
    codes = [finding["code"] for finding in shown["servers"][0]["findings"]]
    assert set(codes) & {"TooFewSlots", "Saturated"}
    text = capsys.readouterr().out
    assert "requests_deferred" in text
    assert f"docs/diagnosis.md#{shown['servers'][0]['findings'][0]['id'].lower()}" in text


def test_a_log_and_its_server_are_one_server(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {**PROPS["default_generation_settings"], "n_ctx": 8192}
    props = {**PROPS, "total_slots": 4, "model_path": "model.gguf", "default_generation_settings": settings}
    with serving(stand_in({"/props": said(props)})) as url:
        shown = document(capsys, "--url", url, "--log", str(LOG))
    (server,) = shown["servers"]
    assert server["name"] == url
    assert server["looked_at"]["log"]["lines"] > 0
    assert shown["notes"] == []


def test_the_log_of_another_server_is_left_out_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(stand_in()) as url:
        shown = document(capsys, "--url", url, "--log", str(LOG))
    assert shown["servers"][0]["looked_at"]["log"] is None
    (note,) = shown["notes"]
    assert [said for said in ("4 slots by the log, 2 by /props", "model.gguf", "small.gguf") if said not in note] == []


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "look_at", functools.partial(look_at, limit_s=1.0))


@pytest.mark.usefixtures("impatient")
def test_a_server_that_says_nothing_is_refused_alone_and_leaves_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(stand_in(dict.fromkeys(("/health", "/props", "/v1/models"), SILENCE))) as url:
        line = refused(capsys, "--url", url)
        shown = document(capsys, "--url", url, "--log", str(LOG), "--probe")
    for words in ("it takes connections and says nothing", "it hangs", "--threads-http N", "look again"):
        assert words in line
        assert words in shown["notes"][0]
    (server,) = shown["servers"]
    assert server["name"] == url
    assert server["looked_at"]["log"]["lines"] > 0
    assert server["healthy"] is None


def test_a_probe_is_announced_and_one_that_fails_leaves_what_was_seen(capsys: pytest.CaptureFixture[str]) -> None:
    """This stand-in answers no request for text."""
    idle = {**METRICS, "requests_processing": 0, "requests_deferred": 0}
    with serving(stand_in({"/metrics": page(idle)})) as url:
        assert main(["diagnose", "--url", url, "--probe", "-o", "json"]) == 0
    shown = capsys.readouterr()
    assert "probing with" in shown.err
    read = json.loads(shown.out)
    assert "--probe" in read["notes"][0]
    assert read["servers"][0]["looked_at"]["server"]["slots"] == 2


# A watch


@pytest.mark.parametrize(
    "seconds",
    ["0", "-1", "0.5", "nan", "inf", "1e9", "3601", "", "a minute", "60,5", "\x1b[2J", "٦٠", "1_0", "9" * 5000],
)
def test_a_watch_for_a_time_that_is_none_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "--url", "http://127.0.0.1:1", f"--watch={seconds}")
    assert "--watch is " in line
    assert "from 1 to 3600: give 60" in line
    assert line.rstrip("\n").isprintable()


@pytest.mark.alone
def test_a_watch_is_said_beforehand_and_shown_with_its_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(stand_in()) as url:
        assert main(["diagnose", "--url", url, "--watch", "1"]) == 0
    shown = capsys.readouterr()
    assert shown.err.startswith("slotune: watching for 1 s")
    assert "Ctrl-C" in shown.err
    assert "/metrics 3 times in 1" in shown.out


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_watch_that_is_stopped_prints_what_is_known_by_then(stop: signal.Signals) -> None:
    server = stand_in()
    with serving(server) as url:
        arguments = [sys.executable, "-m", "slotune.cli", "diagnose", "--url", url, "--watch", "600", "--probe"]
        with subprocess.Popen([*arguments, "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            assert b"watching for 600 s" in process.stderr.readline()
            process.send_signal(stop)
            out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    read = json.loads(out)
    assert read["servers"][0]["looked_at"]["server"]["slots"] == 2
    assert "--watch was ended" in read["notes"][0]
    assert "--probe is left out" in read["notes"][0]
    assert {received.method for received in server.requests} == {"GET"}


def test_a_watch_of_a_server_that_shows_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    off = said({"error": {"code": 501}}, "501 Not Implemented")
    with serving(stand_in({"/metrics": off, "/slots": off})) as url:
        shown = document(capsys, "--url", url, "--watch", "3000")
    assert "--watch had nothing to look at again: start the server with --metrics" in shown["notes"][0]


# What helps to judge


def test_the_manifest_says_what_is_owed_and_what_the_device_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = manifest(tmp_path)
    arguments = ["--log", str(LOG), "-f", str(file), "--model", str(tmp_path / "f16.gguf"), "--bandwidth", "40G"]
    (server,) = document(capsys, *arguments)["servers"]
    assert server["looked_at"]["promise"]["ttft_s"] == 3.0
    assert server["looked_at"]["gpu"] == {"name": "cpu"}
    assert server["looked_at"]["model"]["quantization"] == "F16"
    assert server["sections"]["roofline"]["decode"]["at_most_tokens_per_s"] > 0


def test_a_class_that_the_manifest_has_not_is_refused_with_those_that_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = manifest(tmp_path, model=False)
    line = refused(capsys, "--log", str(LOG), "-f", str(file), "--gpu-class", "h100")
    assert "h100" in line
    assert "cpu" in line


@pytest.mark.parametrize("with_manifest", [False, True])
def test_a_well_known_device_needs_no_manifest(
    with_manifest: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_tiny_model(tmp_path / "tiny.gguf")
    file = ["-f", str(manifest(tmp_path, model=False))] if with_manifest else []
    arguments = ["--log", str(LOG), "--gpu-class", "RTX 4090", "--model", str(model), *file]
    roofline = document(capsys, *arguments)["servers"][0]["sections"]["roofline"]
    assert roofline["device"] == "RTX 4090"
    assert roofline["decode"]["at_most_tokens_per_s"] > 0
    assert roofline["prefill"]["at_most_tokens_per_s"] > 0


@pytest.mark.parametrize("option", ["--model", "--nvidia-smi", "-f"])
def test_a_file_that_helps_must_be_there_and_what_it_should_be(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "foreign").write_text("nothing of the kind\n")
    assert "missing" in refused(capsys, "--log", str(LOG), option, str(tmp_path / "missing"))
    assert "foreign" in refused(capsys, "--log", str(LOG), option, str(tmp_path / "foreign"))


def test_weights_that_are_cut_off_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_tiny_model(tmp_path / "f16.gguf")
    model.write_bytes(model.read_bytes()[:-4096])
    assert "f16.gguf" in refused(capsys, "--log", str(LOG), "--model", str(model))


# The command itself


def test_a_log_is_read_from_a_pipe_and_printed_without_colour_at_80_columns() -> None:
    arguments = [sys.executable, "-m", "slotune.cli", "diagnose", "--log", "-"]
    done = subprocess.run(arguments, input=LOG.read_bytes(), capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    assert text.startswith("standard input")
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_answer_is_printed_as_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "--log", str(LOG), "-o", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["schema"] == "slotune.dev/diagnosis/v1"


def test_ctrl_c_ends_with_130_and_promises_nothing_about_trials(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "read_log", interrupted)
    assert main(["diagnose", "--log", str(LOG)]) == 130
    assert "trials" not in capsys.readouterr().err


def test_ctrl_c_stops_a_log_that_does_not_end() -> None:
    arguments = [sys.executable, "-m", "slotune.cli", "diagnose", "--log", "-"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        # More than a pipe holds: once all of it is gone, the command reads.
        process.stdin.write(LOG.read_bytes() * 40)
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        out, said_meanwhile = process.communicate(timeout=60)
    assert process.returncode == 130, said_meanwhile
    assert out == b""


def test_a_cluster_without_the_package_for_it_names_the_extra() -> None:
    code = "import sys; sys.modules['kubernetes'] = None; from slotune.cli import main; sys.exit(main(sys.argv[1:]))"
    arguments = [sys.executable, "-c", code, "diagnose", "--deployment", "chat"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "slotune[operator]" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["chat", "deployment/chat", "deploy/chat", "deployment.apps/chat"])
def test_a_deployment_may_be_named_as_kubectl_prints_it(name: str) -> None:
    assert make_parser().parse_args(["diagnose", "--deployment", name]).deployment == "chat"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("statefulset/chat", "only a Deployment is looked at"),
        ("pod/chat-0", "kubectl logs … | slotune diagnose --log -"),
        ("deployment/", "a name is needed"),
        ("Chat_1", "a name is needed"),
    ],
)
def test_what_is_no_deployment_is_refused_with_a_way_out(
    name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        make_parser().parse_args(["diagnose", "--deployment", name])
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


def test_a_cluster_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "--deployment", "chat", "--kubeconfig", str(tmp_path / "none"))
    assert "there is no such file" in line


# What is known of a finding


@pytest.mark.parametrize(
    "name",
    ["SLT036", "slt036", "GPUMemoryFull", "SLT036 GPUMemoryFull:", "docs/diagnosis.md#slt036", "--explain SLT036)"],
    ids=["identifier", "small letters", "name", "heading", "link", "pasted with what stood around"],
)
def test_a_finding_is_explained_by_what_is_printed_of_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", f"--explain={name}"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("SLT036")
    assert [part for part in ("Cause", "Try first", "Don't", "Verify") if f"\n{part}" not in text] == []
    assert main(["diagnose", f"--explain={name}", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["code"] == "GPUMemoryFull"


def test_every_finding_can_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    for name, entry in ENTRIES.items():
        assert main(["diagnose", "--explain", name]) == 0
        assert entry.code in capsys.readouterr().out


def test_a_finding_that_there_is_not_is_refused_with_near_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert "SLT036 GPUMemoryFull" in refused(capsys, "--explain", "GPUMemoryFul")
    assert "SLT001" in refused(capsys, "--explain", "\x1b[2J")
    assert "is no finding" in refused(capsys, "--explain", "SLT998 GPUMemoryFull")
    assert "is no finding" in refused(capsys, "--explain", "SLT036 SLT050")
    assert "--log beside --explain" in refused(capsys, "--explain", "SLT036", "--log", "x.log")
