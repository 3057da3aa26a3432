"""Which lines only llama-server says, and which anything says that llama.cpp is in.

llama-cli, llama-bench, bindings for Python, KoboldCpp and Ollama's engine load a model with the same words as the
server, and a job of any kind may say ``model loaded`` or ``main: …``. Slots and requests are the server's alone.
"""

from __future__ import annotations

import re

__all__ = ["is_of_engine", "is_of_server"]

_FUNCTIONS = (
    rb"init|load_model|operator\(\)|update_slots|launch_slot_\w*|print_timing\w*|release|get_availabl\w*|log_server_r\w*"
    rb"|params_from_\w*|cancel_tasks|stop|start|next|prompt_save|prompt_load|load|update|alloc|llama_server|load_models"
    rb"|proxy_reques\w*|send_error|start_loop|remove_wait\w*|create_check\w*|handle_\w+|process_\w+|try_clear_id\w*"
)
_SERVER = re.compile(
    rb"slot +[\w~() ]{1,24}: id +-?\d+ \| task -?\d+ \|"
    rb"|(?:srv|que|res)  (?=.{12}: ) *[\w~():]+ *: |(?:srv|que|res) +(?:" + _FUNCTIONS + rb")(?:\(\))?: "
    rb"|(?:main|start|init|llama_server): (?:(?:HTTP )?server is listening on|using \d+ threads for HTTP server"
    rb"|starting the main loop|couldn't bind|couldn't bind HTTP|exiting due to (?:model loading|HTTP server) error"
    rb"|binding port)"
    rb"|llama server listening at|couldn't bind to server socket: hostname=|HTTP server listening|slotune engine: "
    rb"|slot \d+ (?:is processing \[task|released \(\d+ tokens|: (?:kv cache rm|in cache))"
    rb"|print_timings: +prompt eval time"
)
_ENGINE = re.compile(
    rb"(?:llama|ggml|llm_load|gguf)_\w+(?:\(\))?: |(?:load_tensors|print_info|sched_reserve|load_backend): "
    rb"|common_(?:init|params|speculative|perf|memory)\w*: |cmn  "
    rb"|error: (?:(?:invalid|unknown) argument: -|--model is required|either --embedding|the supplied chat template)"
    rb"|(?:\S*/)?llama-server: (?:error while loading|\S+: version `[^'\n]+' not found)"
    rb"|error while handling (?:argument|environment variable) "
    rb"|(?:\S*: ?)?GGML_ASSERT[(:]|GGML_ABORT| *current device: -?\d+, in function ggml_|\S*ggml\S*:\d+: "
    rb"|(?:warning|error): (?:no usable GPU|Insufficient Memory)|using config file: "
    rb"|(?:prompt |      )? *eval time = +[\d.]+ ms / "
)


def is_of_server(message: bytes) -> bool:
    """Whether no other program than llama-server says ``message``."""
    return _SERVER.match(message) is not None


def is_of_engine(message: bytes) -> bool:
    """Whether ``message`` is of llama.cpp, in llama-server or in another program."""
    return _ENGINE.match(message) is not None
