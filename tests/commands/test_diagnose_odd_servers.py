"""A server may answer any number and any sign: the diagnosis is printed all the same, as text and as data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.mock_server import Script, document
from slotune.cli import main
from tests.commands.test_diagnose import serving
from tests.gathering.standing_in import MODELS, PARAMS, PROPS, SLOTS, said, stand_in

HUGE = 2**64 - 1
META: dict[str, Any] = {**MODELS["data"][0], "meta": {"n_params": HUGE, "size": HUGE, "n_vocab": HUGE, "n_embd": -1}}
ODD: dict[str, dict[str, Script]] = {
    "a context of 309 digits": {"/props": document(json.dumps(PROPS).replace("4096", "1e308"))},
    "slots of 309 digits": {"/slots": document(json.dumps(SLOTS).replace("4096", "1e308"))},
    "as many slots as 64 bits count": {"/props": said({**PROPS, "total_slots": HUGE})},
    "fewer slots than none": {
        "/props": said({**PROPS, "total_slots": -1, "default_generation_settings": {"params": PARAMS, "n_ctx": -4096}})
    },
    "weights of 64 bits": {"/v1/models": said({**MODELS, "data": [META]})},
    "signs that move a cursor": {
        "/props": said({**PROPS, "model_path": "/m/\x1b[31mred\x07\n\u202e.gguf", "build_info": "b1\x1b[2J\x00"}),
        "/v1/models": said({**MODELS, "data": [{**MODELS["data"][0], "id": "\x1b]0;title\x07"}]}),
    },
}


@pytest.mark.parametrize("name", ODD)
def test_whatever_a_server_answers_the_diagnosis_is_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(stand_in(ODD[name])) as url:
        for form in ((), ("-o", "json")):
            assert main(["diagnose", "--url", url, *form]) == 0
            shown = capsys.readouterr()
            assert "Traceback" not in shown.err
            assert "\x1b" not in shown.out
            assert "\x07" not in shown.out
    (server,) = json.loads(shown.out)["servers"]
    assert server["name"] == url
