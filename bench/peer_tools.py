"""Load generators that are compared: for each, how it is started with its best options and where it says what it saw.

All of them send the same chat prompts from a file to the same server, and take the server's token counts. They
cannot tell lengths apart without a tokenizer; one whose every word is a token is written beside the prompts, so that
nothing is downloaded. Each sits in a virtual environment of its own, outside the project's dependencies.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from slotune.load.client import Target, run_load
from slotune.load.demand import Demand, Prompt
from slotune.load.trace import build_trace

__all__ = ["OURS", "PEERS", "TOKENS", "Reported", "Run", "Tool", "command", "run_ours", "write_inputs"]

ROOT = Path(__file__).resolve().parent.parent
TOKENS = 64
"""Tokens of each answer."""
PROMPT_WORDS = 500
PROMPTS = 500
"""Different prompts; they are sent over and over."""
WORKERS = 2
MODEL = "mock"
SEED = 7


@dataclass(frozen=True)
class Run:
    """One run of one tool: ``rate`` requests/s for ``seconds``, after one second at that rate that does not count."""

    url: str
    rate: float
    seconds: float
    inputs: Path
    """What `write_inputs` filled."""
    folder: Path
    """Where the tool runs and leaves its report."""

    @property
    def requests(self) -> int:
        """Requests that count."""
        return round(self.rate * self.seconds)

    @property
    def warmup(self) -> int:
        """Requests before them."""
        return round(self.rate)


@dataclass(frozen=True)
class Reported:
    """What a tool says about the requests that were answered; times in milliseconds."""

    ttft_p95_ms: float
    ttft_p99_ms: float
    answers: int


@dataclass(frozen=True)
class Tool:
    """A load generator."""

    name: str
    arguments: Callable[[Run], list[str]]
    """What follows the program's name. May write files into the run's folder."""
    read: Callable[[Path], Reported]
    """Reads the report in a run's folder."""
    version: str = ""
    python: str = ""
    """The Python that it is installed with."""
    environment: Mapping[str, str] = field(default_factory=dict)

    def program(self, venvs: Path) -> Path:
        """Where its virtual environment has it."""
        return venvs / self.name / "bin" / self.name

    def installation(self, venvs: Path) -> tuple[str, str]:
        """The commands that put it there."""
        folder = venvs / self.name
        install = f"uv pip install --python {folder}/bin/python {self.name}=={self.version}"
        return f"uv venv --python {self.python} {folder}", install


def write_inputs(folder: Path) -> None:
    """Write the prompts as each tool reads them, the tokenizer, and a folder that turns the garbage collector off."""
    rng = random.Random(SEED)
    words = sorted({"".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=5)) for _ in range(2000)})
    prompts = [" ".join(rng.choices(words, k=PROMPT_WORDS)) for _ in range(PROMPTS)]
    (folder / "prompts.jsonl").write_text(_lines({"text": prompt, "output_length": TOKENS} for prompt in prompts))
    answer = {"from": "gpt", "value": words[0]}
    talks = [{"conversations": [{"from": "human", "value": prompt}, answer]} for prompt in prompts]
    (folder / "inference-perf.json").write_text(json.dumps(talks))
    (folder / "no_collector").mkdir()
    (folder / "no_collector" / "sitecustomize.py").write_text("import gc\n\ngc.disable()\n")
    _write_tokenizer(folder / "tokenizer", words)


def _lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _prompts(inputs: Path) -> list[str]:
    return [json.loads(line)["text"] for line in (inputs / "prompts.jsonl").read_text().splitlines()]


def _write_tokenizer(folder: Path, words: list[str]) -> None:
    """Write one token for each word, in the format of the `tokenizers` library."""
    flags = ("single_word", "lstrip", "rstrip", "normalized")
    unknown = {"id": 0, "content": "<unk>", "special": True, **dict.fromkeys(flags, False)}
    vocabulary = {"<unk>": 0, **{word: number for number, word in enumerate(words, start=1)}}
    empty = ("truncation", "padding", "normalizer", "post_processor", "decoder")
    files = {
        "tokenizer.json": {
            "version": "1.0",
            **dict.fromkeys(empty),
            "added_tokens": [unknown],
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **dict.fromkeys(("unk_token", "eos_token", "pad_token"), "<unk>"),
            "model_max_length": 8192,
            "chat_template": "{% for message in messages %}{{ message['content'] }} {% endfor %}",
        },
        "config.json": {"model_type": "llama"},
    }
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))


def _ours(run: Run) -> list[str]:
    code = "import sys; from bench.peer_tools import run_ours; run_ours(*sys.argv[1:])"
    return ["-c", code, run.url, str(run.rate), str(run.requests), str(run.inputs)]


def run_ours(url: str, rate: str, requests: str, inputs: str) -> None:
    """Run slotune's own client, which is what the process of our row does; its report goes into the current folder."""
    prompts = tuple(Prompt(messages=({"role": "user", "content": text},)) for text in _prompts(Path(inputs)))
    demand = Demand(peak_rate=float(rate), output_tokens=TOKENS, prompts=prompts)
    warmup = round(float(rate))
    trace = build_trace(demand, rate=float(rate), seed=SEED, requests=int(requests), warmup_requests=warmup)
    records = uvloop.run(run_load(Target(url), trace, demand, deadline_s=1.0)).records
    seen = [record.ttft_s for record in records if record.ttft_s is not None]
    p95, p99 = np.quantile(seen, [0.95, 0.99]) * 1e3
    report = {"ttft_p95_ms": float(p95), "ttft_p99_ms": float(p99), "answers": len(seen)}
    Path("report.json").write_text(json.dumps(report))


def _read_ours(folder: Path) -> Reported:
    return Reported(**json.loads((folder / "report.json").read_text()))


def _guidellm(run: Run) -> list[str]:
    # It stops at the end of its file, so the file has a line for each request.
    texts = itertools.islice(itertools.cycle(_prompts(run.inputs)), run.warmup + run.requests)
    data = run.folder / "prompts.jsonl"
    data.write_text(_lines({"prompt": text, "output_tokens_count": TOKENS} for text in texts))
    # Constant: its Poisson arrivals repeat one seed in every worker, so that requests come in pairs.
    options = {
        "backend": f"kind=openai_http,target={run.url},model={MODEL}",
        "profile": f"kind=constant,rate={run.rate:g},warmup={run.warmup}",
        "constraint": f"kind=max_requests,count={run.warmup + run.requests}",
        "tokenizer": f"kind=huggingface_auto,model={run.inputs / 'tokenizer'}",
        "data": f"kind=json_file,path={data}",
        "output": f"kind=json,path={run.folder / 'report.json'}",
    }
    return ["run", "--disable-console", *(part for name, value in options.items() for part in (f"--{name}", value))]


def _read_guidellm(folder: Path) -> Reported:
    metrics = json.loads((folder / "report.json").read_text())["benchmarks"][0]["metrics"]
    ttft = metrics["time_to_first_token_ms"]["successful"]
    return Reported(ttft["percentiles"]["p95"], ttft["percentiles"]["p99"], ttft["count"])


def _aiperf(run: Run) -> list[str]:
    options = {
        "model": MODEL,
        "url": run.url,
        "endpoint-type": "chat",
        "request-rate": f"{run.rate:g}",
        "arrival-pattern": "poisson",
        "request-count": str(run.requests),
        "warmup-request-count": str(run.warmup),
        "input-file": str(run.inputs / "prompts.jsonl"),
        "custom-dataset-type": "single_turn",
        "tokenizer": str(run.inputs / "tokenizer"),
        "workers-max": str(WORKERS),
        "ui": "none",
        "export-level": "summary",
        "artifact-dir": str(run.folder),
        "random-seed": str(SEED),
    }
    flags = ["--streaming", "--use-server-token-count", "--no-server-metrics", "--no-gpu-telemetry"]
    return ["profile", *flags, *(part for name, value in options.items() for part in (f"--{name}", value))]


def _read_aiperf(folder: Path) -> Reported:
    ttft = json.loads((folder / "profile_export_aiperf.json").read_text())["time_to_first_token"]
    return Reported(ttft["p95"], ttft["p99"], int(ttft["count"]))


def _inference_perf(run: Run) -> list[str]:
    # The only kind of data that is read from a file and is sent as chat; its stages last whole seconds.
    lifecycle = {"summary": False, "per_stage": True, "per_adapter": False, "use_server_output_tokens": True}
    stages = [{"rate": run.rate, "duration": seconds} for seconds in (1, max(1, round(run.seconds)))]
    config = {
        "api": {"type": "chat", "streaming": True},
        "data": {"type": "shareGPT", "path": str(run.inputs / "inference-perf.json")},
        "load": {"type": "poisson", "stages": stages, "num_workers": WORKERS, "worker_max_concurrency": 2000},
        "server": {"type": "vllm", "model_name": MODEL, "base_url": run.url},
        "tokenizer": {"pretrained_model_name_or_path": str(run.inputs / "tokenizer")},
        "report": {"request_lifecycle": lifecycle, "prometheus": None},
        "storage": {"local_storage": {"path": str(run.folder)}},
    }
    (run.folder / "inference-perf.yaml").write_text(json.dumps(config))
    return ["--config_file", str(run.folder / "inference-perf.yaml")]


def _read_inference_perf(folder: Path) -> Reported:
    answered = json.loads((folder / "stage_1_lifecycle_metrics.json").read_text())["successes"]
    ttft = answered["latency"]["time_to_first_token"]
    return Reported(ttft["p95"] * 1e3, ttft["p99"] * 1e3, answered["count"])


_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}

OURS = Tool("slotune", _ours, _read_ours, environment={"PYTHONPATH": str(ROOT)})

PEERS = (
    Tool(
        "guidellm",
        _guidellm,
        _read_guidellm,
        version="0.8.1",
        python="3.11",
        environment={**_OFFLINE, "GUIDELLM__MAX_WORKER_PROCESSES": str(WORKERS)},
    ),
    # AIPerf takes no tokenizer from a folder when it is told to be offline: it gets a hub that is not there.
    Tool(
        "aiperf",
        _aiperf,
        _read_aiperf,
        version="0.13.0",
        python="3.11",
        environment={"HF_ENDPOINT": "http://127.0.0.1:9"},
    ),
    Tool("inference-perf", _inference_perf, _read_inference_perf, version="0.7.0", python="3.12", environment=_OFFLINE),
)


def command(tool: Tool, run: Run, venvs: Path) -> list[str]:
    """The whole command line: our own client is started with the Python that runs this."""
    program = sys.executable if tool is OURS else str(tool.program(venvs))
    return [program, *tool.arguments(run)]
