"""Every flag that llama-server knows: spellings, how many values, environment variable.

Facts of build 11549 (its own flags, checked against the engine's binary by a test) and b11434 (which flags the server
takes and how). One row is one flag. First its spellings, then after ``|`` those that turn it off, then ``:`` and its
values (``N`` a whole number, ``S`` text), then ``@`` and its environment variable without the prefix ``LLAMA_ARG_``;
after ``@=`` stands a whole name. What is no longer known, and what others call it, is in
:mod:`slotune.llama.flag_cures`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["BY_ENV", "BY_NAME", "FLAGS", "Flag", "canonical_spelling"]

ENV_PREFIX: Final = "LLAMA_ARG_"


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of llama-server."""

    names: tuple[str, ...]
    """Spellings, the first is the one that slotune writes and calls it by."""
    negations: tuple[str, ...] = ()
    """Spellings that turn a switch off."""
    values: int = 0
    """Arguments that follow; 0: a switch."""
    whole_number: bool = False
    env: str | None = None

    @property
    def name(self) -> str:
        """Its first spelling."""
        return self.names[0]

    @property
    def negative_env(self) -> str | None:
        """Variable whose mere presence turns a switch off; only those that can be turned off have one."""
        return self.env.replace(ENV_PREFIX, f"{ENV_PREFIX}NO_") if self.env and self.negations else None


_ROWS: Final = """
# The model and what is added to it
--check-tensors
--override-kv  :S
--lora  :S
--lora-scaled  :S
--control-vector  :S
--control-vector-scaled  :S
--control-vector-layer-range  :SS
-a --alias  :S  @ALIAS
--tags  :S  @TAGS
-m --model  :S  @MODEL
-mu --model-url  :S  @MODEL_URL
-dr --docker-repo  :S  @DOCKER_REPO
-hf -hfr --hf-repo  :S  @HF_REPO
-hff --hf-file  :S  @HF_FILE
-hft --hf-token  :S  @=HF_TOKEN
--lora-init-without-apply
--offline  @OFFLINE
# Slots, context, batches, caches
-c --ctx-size  :N  @CTX_SIZE
--kv-unified-per-slot  :N  @KV_UNIFIED_PER_SLOT
-n --predict --n-predict  :N  @N_PREDICT
-b --batch-size  :N  @BATCH
-ub --ubatch-size  :N  @UBATCH
--keep  :N
--swa-full  @SWA_FULL
-ctxcp --ctx-checkpoints --swa-checkpoints  :N  @CTX_CHECKPOINTS
-cms --checkpoint-min-step  :N  @CHECKPOINT_MIN_SPACING_NT
-cram --cache-ram  :N  @CACHE_RAM
-kvu --kv-unified | -no-kvu --no-kv-unified  @KV_UNIFIED
--cache-idle-slots | --no-cache-idle-slots  @CACHE_IDLE_SLOTS
--context-shift | --no-context-shift  @CONTEXT_SHIFT
-fa --flash-attn  :S  @FLASH_ATTN
--warmup | --no-warmup
-bs --backend-sampling  @BACKEND_SAMPLING
-ctk --cache-type-k  :S  @CACHE_TYPE_K
-ctv --cache-type-v  :S  @CACHE_TYPE_V
-dt --defrag-thold  :S  @DEFRAG_THOLD
-np --parallel  :N  @N_PARALLEL
-cb --cont-batching | -nocb --no-cont-batching  @CONT_BATCHING
--cache-prompt | --no-cache-prompt  @CACHE_PROMPT
--cache-reuse  :N  @CACHE_REUSE
--slot-save-path  :S  @SLOT_SAVE_PATH
-sps --slot-prompt-similarity  :S
--sleep-idle-seconds  :N
# Where things are placed
-kvo --kv-offload | -nkvo --no-kv-offload  @KV_OFFLOAD
--repack | -nr --no-repack  @REPACK
--no-host  @NO_HOST
--rpc  :S  @RPC
-lm --load-mode  :S  @LOAD_MODE
-lzm --lazy-mode  :S  @LAZY_MODE
-dev --device  :S  @DEVICE
-ot --override-tensor  :S  @OVERRIDE_TENSOR
-ncmoe --n-cpu-moe  :N  @N_CPU_MOE
-ncffn --n-cpu-ffn  :N  @N_CPU_FFN
--moe-cache-mib  :N  @MOE_CACHE_MIB
-ngl --gpu-layers --n-gpu-layers  :S  @N_GPU_LAYERS
-sm --split-mode  :S  @SPLIT_MODE
-ts --tensor-split  :S  @TENSOR_SPLIT
-mg --main-gpu  :N  @MAIN_GPU
-fit --fit  :S  @FIT
-fitt --fit-target  :S  @FIT_TARGET
-fitc --fit-ctx  :N  @FIT_CTX
--op-offload | --no-op-offload
# Processor
-t --threads  :N  @THREADS
-tb --threads-batch  :N
-C --cpu-mask  :S
-Cr --cpu-range  :S
--cpu-strict  :S
--prio  :N
--poll  :S
-Cb --cpu-mask-batch  :S
-Crb --cpu-range-batch  :S
--cpu-strict-batch  :N
--prio-batch  :N
--poll-batch  :N
--numa  :S  @NUMA
-cmoe --cpu-moe  @CPU_MOE
--spec-draft-cpu-mask -Cd --cpu-mask-draft  :S
--spec-draft-cpu-range -Crd --cpu-range-draft  :S
--spec-draft-cpu-strict --cpu-strict-draft  :N
--spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft  :S
--spec-draft-cpu-strict-batch --cpu-strict-batch-draft  :N
--spec-draft-prio-batch --prio-batch-draft  :N
--spec-draft-poll-batch --poll-batch-draft  :N
--spec-draft-cpu-moe -cmoed --cpu-moe-draft  @SPEC_DRAFT_CPU_MOE
# Positions
--rope-scaling  :S  @ROPE_SCALING_TYPE
--rope-scale  :S  @ROPE_SCALE
--rope-freq-base  :S  @ROPE_FREQ_BASE
--rope-freq-scale  :S  @ROPE_FREQ_SCALE
--yarn-orig-ctx  :N  @YARN_ORIG_CTX
--yarn-ext-factor  :S  @YARN_EXT_FACTOR
--yarn-attn-factor  :S  @YARN_ATTN_FACTOR
--yarn-beta-slow  :S  @YARN_BETA_SLOW
--yarn-beta-fast  :S  @YARN_BETA_FAST
# Speculation
-lcs --lookup-cache-static  :S
-lcd --lookup-cache-dynamic  :S
--spec-draft-hf -hfd -hfrd --hf-repo-draft  :S  @SPEC_DRAFT_HF_REPO
--spec-draft-threads -td --threads-draft  :N
--spec-draft-threads-batch -tbd --threads-batch-draft  :N
--spec-draft-prio --prio-draft  :N
--spec-draft-poll --poll-draft  :N
--spec-draft-type-k -ctkd --cache-type-k-draft  :S  @SPEC_DRAFT_CACHE_TYPE_K
--spec-draft-type-v -ctvd --cache-type-v-draft  :S  @SPEC_DRAFT_CACHE_TYPE_V
--spec-draft-override-tensor -otd --override-tensor-draft  :S
--spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft  :N  @SPEC_DRAFT_N_CPU_MOE
--spec-draft-n-max  :N  @SPEC_DRAFT_N_MAX
--spec-draft-n-min  :N  @SPEC_DRAFT_N_MIN
--spec-synth-len  :S  @SPEC_SYNTH_LEN
--spec-synth-rates  :S  @SPEC_SYNTH_RATES
--spec-draft-p-split --draft-p-split  :S  @SPEC_DRAFT_P_SPLIT
--spec-draft-p-min --draft-p-min  :S  @SPEC_DRAFT_P_MIN
--spec-draft-backend-sampling | --no-spec-draft-backend-sampling  @SPEC_DRAFT_BACKEND_SAMPLING
--spec-draft-sampling  :S  @SPEC_DRAFT_SAMPLING
--spec-draft-device -devd --device-draft  :S
--spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft  :S  @N_GPU_LAYERS_DRAFT
--spec-draft-model -md --model-draft  :S  @SPEC_DRAFT_MODEL
--spec-type  :S  @SPEC_TYPE
--spec-ngram-mod-n-min  :N
--spec-ngram-mod-n-max  :N
--spec-ngram-mod-n-match  :N
--spec-ngram-simple-size-n  :N
--spec-ngram-simple-size-m  :N
--spec-ngram-simple-min-hits  :N
--spec-ngram-map-k-size-n  :N
--spec-ngram-map-k-size-m  :N
--spec-ngram-map-k-min-hits  :N
--spec-ngram-map-k4v-size-n  :N
--spec-ngram-map-k4v-size-m  :N
--spec-ngram-map-k4v-min-hits  :N
--spec-default
# Sampling
--samplers  :S
-s --seed  :S
--sampler-seq --sampling-seq  :S
--ignore-eos
--temp --temperature  :S  @TEMPERATURE
--top-k  :N  @TOP_K
--top-p  :S  @TOP_P
--min-p  :S  @MIN_P
--top-nsigma --top-n-sigma  :S
--xtc-probability  :S
--xtc-threshold  :S
--typical --typical-p  :S
--repeat-last-n  :N
--repeat-penalty  :S  @REPEAT_PENALTY
--presence-penalty  :S  @PRESENCE_PENALTY
--frequency-penalty  :S  @FREQUENCY_PENALTY
--dry-multiplier  :S
--dry-base  :S
--dry-allowed-length  :N
--dry-penalty-last-n  :N
--dry-sequence-breaker  :S
--adaptive-target  :S
--adaptive-decay  :S
--dynatemp-range  :S
--dynatemp-exp  :S
--mirostat  :N
--mirostat-lr  :S
--mirostat-ent  :S
-l --logit-bias  :S
--grammar  :S
--grammar-file  :S
-j --json-schema  :S
-jf --json-schema-file  :S
# Prompts and answers
-e --escape | --no-escape
-r --reverse-prompt  :S
-sp --special
--spm-infill
--chat-template-kwargs  :S  @CHAT_TEMPLATE_KWARGS
--jinja | --no-jinja  @JINJA
--reasoning-format  :S  @THINK
-rea --reasoning  :S  @REASONING
--reasoning-effort  :S  @REASONING_EFFORT
--reasoning-budget  :N  @THINK_BUDGET
--reasoning-budget-message  :S  @THINK_BUDGET_MESSAGE
--reasoning-preserve | --no-reasoning-preserve  @REASONING_PRESERVE
--chat-template  :S  @CHAT_TEMPLATE
--chat-template-file  :S  @CHAT_TEMPLATE_FILE
--skip-chat-parsing | --no-skip-chat-parsing  @SKIP_CHAT_PARSING
--prefill-assistant | --no-prefill-assistant  @PREFILL_ASSISTANT
# Images, sound, video
-mm --mmproj  :S  @MMPROJ
-mmu --mmproj-url  :S  @MMPROJ_URL
--mmproj-auto | --no-mmproj --no-mmproj-auto  @MMPROJ_AUTO
--mmproj-offload | --no-mmproj-offload  @MMPROJ_OFFLOAD
-mmdev --mmproj-device  :S  @=MTMD_BACKEND_DEVICE
--image-min-tokens  :N  @IMAGE_MIN_TOKENS
--image-max-tokens  :N  @IMAGE_MAX_TOKENS
--mtmd-batch-max-tokens  :N  @MTMD_BATCH_MAX_TOKENS
--video-fps  :S  @VIDEO_FPS
--video-timestamp-interval  :N  @VIDEO_TIMESTAMP_INTERVAL
--video-ffmpeg-dir  :S  @VIDEO_FFMPEG_DIR
--media-path  :S
# HTTP
--pooling  :S  @POOLING
--embd-normalize  :N
--host  :S  @HOST
--port  :N  @PORT
--reuse-port  @REUSE_PORT
--path  :S  @STATIC_PATH
--cors-origins  :S  @CORS_ORIGINS
--cors-methods  :S  @CORS_METHODS
--cors-headers  :S  @CORS_HEADERS
--cors-credentials | --no-cors-credentials  @CORS_CREDENTIALS
--api-prefix  :S  @API_PREFIX
--ui-config --webui-config  :S  @UI_CONFIG
--ui-config-file --webui-config-file  :S  @UI_CONFIG_FILE
--ui-mcp-proxy --webui-mcp-proxy | --no-ui-mcp-proxy --no-webui-mcp-proxy  @UI_MCP_PROXY
--tools  :S  @TOOLS
--tools-runtime  :S  @TOOLS_RUNTIME
--mcp-servers-config  :S  @MCP_SERVERS_CONFIG
--mcp-servers-json  :S  @MCP_SERVERS_JSON
-ag --agent | -no-ag --no-agent  @AGENT
--ui --webui | --no-ui --no-webui  @UI
--embedding --embeddings  @EMBEDDINGS
--rerank --reranking  @RERANKING
--api-key  :S  @=LLAMA_API_KEY
--api-key-file  :S  @API_KEY_FILE
--ssl-key-file  :S  @SSL_KEY_FILE
--ssl-cert-file  :S  @SSL_CERT_FILE
-to --timeout  :N  @TIMEOUT
--sse-ping-interval  :N  @SSE_PING_INTERVAL
--threads-http  :N  @THREADS_HTTP
--metrics  @ENDPOINT_METRICS
--props  @ENDPOINT_PROPS
--slots | --no-slots  @ENDPOINT_SLOTS
# Log
--perf | --no-perf  @PERF
--log-disable
--log-file  :S  @LOG_FILE
--log-jsonl | --no-log-jsonl  @LOG_JSONL
--log-prompts-dir  :S
--log-colors  :S  @LOG_COLORS
-v --verbose --log-verbose
-lv --verbosity --log-verbosity  :N  @LOG_VERBOSITY
--log-prefix | --no-log-prefix  @LOG_PREFIX
--log-timestamps | --no-log-timestamps  @LOG_TIMESTAMPS
# Router
--models-dir  :S  @MODELS_DIR
--models-preset  :S  @MODELS_PRESET
--models-max  :N  @MODELS_MAX
--models-autoload | --no-models-autoload  @MODELS_AUTOLOAD
# Presets
--embd-gemma-default
--fim-qwen-1.5b-default
--fim-qwen-3b-default
--fim-qwen-7b-default
--fim-qwen-7b-spec
--fim-qwen-14b-spec
--fim-qwen-30b-default
--gpt-oss-20b-default
--gpt-oss-120b-default
--vision-gemma-4b-default
--vision-gemma-12b-default
# Answers and exits
-h --help --usage
--version
-cl --cache-list
--completion-bash
--list-devices
"""


def canonical_spelling(word: str) -> str:
    """``word`` as llama-server looks it up: ``--a_b`` is ``--a-b``, short ones are taken as they are."""
    return word.replace("_", "-") if word.startswith("--") else word


def _flags() -> Iterator[Flag]:
    for line in _ROWS.splitlines():
        row = line.strip()
        if not row or row.startswith("#"):
            continue
        spellings, _, variable = row.partition("@")
        spellings, _, values = spellings.partition(":")
        positive, _, negative = spellings.partition("|")
        env = variable.strip()
        yield Flag(
            names=tuple(positive.split()),
            negations=tuple(negative.split()),
            values=len(values.strip()),
            whole_number=values.strip() == "N",
            env=(env.removeprefix("=") if env.startswith("=") else ENV_PREFIX + env) if env else None,
        )


FLAGS: Final = tuple(_flags())

BY_NAME: Final = {name: (flag, True) for flag in FLAGS for name in flag.names} | {
    name: (flag, False) for flag in FLAGS for name in flag.negations
}
"""Flag and whether the spelling is the positive one."""

BY_ENV: Final = {flag.env: flag for flag in FLAGS if flag.env}
