"""A change makes the server the candidate, is made where each setting lives, and touches nothing else."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from slotune.api.kubernetes_types import PodTemplate
from slotune.api.v1alpha1 import ModelVariant
from slotune.llama.build_arguments import unsupported
from slotune.llama.candidate import Candidate
from slotune.rollout.change import Change, ForeignCandidateError, compose_change, kustomize_files
from slotune.tuning.baseline import Baseline, read_baseline

VARIANTS = tuple(ModelVariant(name=name, path=f"/models/{name.lower()}.gguf") for name in ("Q8", "Q4", "tiny"))
ConfigMaps = dict[str, dict[str, str]]


def template_of(container: dict[str, Any]) -> dict[str, Any]:
    sidecar = {"name": "proxy", "image": "envoy", "args": ["-c", "x"]}
    return {"metadata": {"labels": {"app": "llm"}}, "spec": {"containers": [{"name": "llama", **container}, sidecar]}}


def read(template: dict[str, Any], config_maps: ConfigMaps) -> Baseline:
    pod = PodTemplate.model_validate(template)
    container = pod.container("llama")
    assert container is not None
    return read_baseline(
        pod,
        container,
        config_maps,
        variants=VARIANTS,
        training_context={"Q8": 1 << 20, "Q4": 1 << 20},
        gpu_class="l4",
    )


def change_of(
    container: dict[str, Any], config_maps: ConfigMaps | None = None, *, only_pod: bool = False, **changes: Any
) -> Change:
    template = template_of(container)
    baseline = read(template, config_maps or {})
    pod = PodTemplate.model_validate(template)
    server = pod.container("llama")
    assert server is not None
    candidate = replace(baseline.candidate, **changes)
    return compose_change(pod, server, baseline, candidate, config_maps=config_maps or {}, only_pod=only_pod)


EXPLICIT = [
    "-m", "/models/q8.gguf", "-ngl", "all", "-fit", "off", "-np", "4", "-c", "8192", "-no-kvu", "-b", "2048", "-ub",
    "512", "-fa", "on", "-ctk", "f16", "-ctv", "f16", "-t", "8", "-tb", "8", "--cache-prompt", "--cache-ram", "0",
    "--no-cache-idle-slots", "--cache-reuse", "0", "--metrics",
]  # fmt: skip


# ------------------------------------------------------------------- where a setting lives


def test_a_server_that_states_the_candidate_already_is_not_changed() -> None:
    change = change_of({"args": EXPLICIT})

    assert change.is_empty
    assert change.container_patch() == {"name": "llama"}
    assert kustomize_files(change, deployment="llm")["kustomization.yaml"].count("patches: []") == 1


def test_a_setting_in_args_is_changed_in_place_and_in_the_persons_spelling() -> None:
    args = [{"-np": "--parallel", "-c": "--ctx_size"}.get(word, word) for word in EXPLICIT]
    change = change_of({"args": args}, parallel_slots=16)

    want = list(args)
    want[want.index("--parallel") + 1] = "16"
    want[want.index("--ctx_size") + 1] = "32768"
    assert change.args == tuple(want)
    assert change.command is None
    assert change.sentences == ("--parallel 4 → 16 in args", "--ctx_size 8192 → 32768 in args")


def test_a_setting_in_command_is_changed_in_command() -> None:
    command = ["/sbin/tini", "--", "/app/llama-server", *EXPLICIT]
    change = change_of({"command": command}, kv_unified=True, gpu_layers="17", speculation="ngram-mod")

    assert change.args is None
    assert change.command is not None
    assert change.command[:3] == tuple(command[:3])
    assert change.command[-2:] == ("--spec-type", "ngram-mod")
    assert change.sentences == (
        "-ngl all → 17 in command",
        "-no-kvu → -kvu in command",
        "--spec-type ngram-mod added to command",
    )


def test_a_setting_in_a_variable_is_changed_there() -> None:
    args = [word for word in EXPLICIT if word not in {"-np", "4"}]
    env = [
        {"name": "LLAMA_ARG_N_PARALLEL", "value": "4"},
        {"name": "OTHER", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    change = change_of({"args": args, "env": env}, parallel_slots=16, context_per_slot=512)

    assert change.container_patch() == {"name": "llama", "env": [{"name": "LLAMA_ARG_N_PARALLEL", "value": "16"}]}
    assert change.sentences == ("LLAMA_ARG_N_PARALLEL 4 → 16 in env",)
    patched = change.patched_template(template_of({"args": args, "env": env}))
    assert patched["spec"]["containers"][0]["env"] == [{"name": "LLAMA_ARG_N_PARALLEL", "value": "16"}, env[1]]


FROM_MAPS: dict[str, Any] = {
    "args": ["-m", "/models/q8.gguf", "-np", "$(SLOTS)"],
    "env": [
        {"name": "SLOTS", "valueFrom": {"configMapKeyRef": {"name": "numbers", "key": "slots"}}},
        {"name": "LLAMA_ARG_UBATCH", "valueFrom": {"configMapKeyRef": {"name": "numbers", "key": "ub"}}},
    ],
    "envFrom": [{"configMapRef": {"name": "flags"}, "prefix": "LLAMA_ARG_"}],
}
MAPS = {"numbers": {"slots": "4", "ub": "512", "other": "1"}, "flags": {"CTX_SIZE": "8192", "BATCH": "2048"}}


def test_a_setting_in_a_config_map_is_changed_there_and_the_pods_start_anew() -> None:
    change = change_of(FROM_MAPS, MAPS, parallel_slots=8, ubatch_size=256)

    assert change.config_maps == {"numbers": {"slots": "8", "ub": "256"}, "flags": {"CTX_SIZE": "16384"}}
    assert "SLOTS 4 → 8 in ConfigMap numbers, key slots" in change.sentences
    patched = change.patched_template(template_of(FROM_MAPS))
    assert list(patched["metadata"]["annotations"]) == ["slotune.dev/configuration"]
    assert patched["metadata"]["labels"] == {"app": "llm"}


def test_with_the_pod_alone_config_maps_stay_as_they_are() -> None:
    change = change_of(FROM_MAPS, MAPS, only_pod=True, parallel_slots=8, ubatch_size=256)

    assert change.config_maps == {}
    assert change.annotations == {}
    assert change.args is not None
    assert change.args[:4] == ("-m", "/models/q8.gguf", "-np", "8")
    assert "-ub 512 → 256 in args" in change.sentences


def test_a_server_of_variables_only_stays_one() -> None:
    env = [{"name": "LLAMA_ARG_MODEL", "value": "/models/q8.gguf"}, {"name": "LLAMA_ARG_CTX_SIZE", "value": "4096"}]
    change = change_of({"env": env}, parallel_slots=2, kv_unified=False, context_per_slot=2048)

    assert not change.writes_args
    assert change.env["LLAMA_ARG_N_PARALLEL"] == "2"
    assert change.env["LLAMA_ARG_KV_UNIFIED"] == "false"
    assert "LLAMA_ARG_N_PARALLEL 2 added to env" in change.sentences


def test_a_variable_that_is_off_by_being_there_is_overruled_in_args() -> None:
    change = change_of(
        {"args": EXPLICIT[:-1], "env": [{"name": "LLAMA_ARG_NO_PERF", "value": "1"}]}, cache_prompt=False
    )
    assert change.sentences == ("--cache-prompt → --no-cache-prompt in args", "--metrics added to args")

    args = [word for word in EXPLICIT if word != "--cache-prompt"]
    env = [{"name": "LLAMA_ARG_NO_CACHE_PROMPT", "value": "1"}]
    overruled = change_of({"args": args, "env": env}, cache_prompt=True)
    assert overruled.args == (*args, "--cache-prompt")


def test_a_reference_that_others_use_is_replaced_and_not_changed() -> None:
    args = [*EXPLICIT, "--alias", "model-$(N)"]
    args[args.index("-np") + 1] = "$(N)"
    change = change_of({"args": args, "env": [{"name": "N", "value": "4"}]}, parallel_slots=8, context_per_slot=1024)

    assert change.env == {}
    assert change.args is not None
    assert change.args[args.index("-np") + 1] == "8"
    assert change.args[-1] == "model-$(N)"


def test_a_key_of_a_config_map_that_two_settings_share_is_left_alone() -> None:
    both = {"valueFrom": {"configMapKeyRef": {"name": "numbers", "key": "size"}}}
    container = {
        "args": [*EXPLICIT[:11], *EXPLICIT[15:]],
        "env": [{"name": "LLAMA_ARG_BATCH", **both}, {"name": "LLAMA_ARG_UBATCH", **both}],
    }
    change = change_of(container, {"numbers": {"size": "512"}}, ubatch_size=256)

    assert change.config_maps == {}
    assert change.sentences == ("-ub 512 → 256 in args",)


def test_keys_and_untuned_flags_stay_word_by_word() -> None:
    args = [*EXPLICIT, "--api-key", "$(KEY)", "--jinja", "--fork-mode", "x", "y", "--temp", "0.2", "-v", "$$(ESCAPED)"]
    change = change_of({"args": args[:-1], "env": [{"name": "KEY", "value": "hush"}]}, batch_size=1024)

    assert change.args is not None
    assert change.args[len(EXPLICIT) :] == tuple(args[len(EXPLICIT) : -1])
    assert "hush" not in repr(change)


def test_a_repeated_flag_is_stated_once_afterwards() -> None:
    args = ["-np", "1", *EXPLICIT, "-np", "2"]
    change = change_of({"args": args}, parallel_slots=6, context_per_slot=1024)

    assert change.args is not None
    assert change.args.count("-np") == 1
    assert change.args[-2:] == ("-np", "6")


def test_speculation_is_turned_off_wherever_it_was_turned_on() -> None:
    change = change_of({"args": [*EXPLICIT, "--spec-default", "--spec-type", "ngram-cache"]}, speculation="none")
    assert change.args == (*EXPLICIT, "--spec-type", "none")
    assert change.sentences[-1] == "--spec-default taken out of args"

    env = [{"name": "LLAMA_ARG_SPEC_TYPE", "value": "ngram-mod"}]
    assert change_of({"args": EXPLICIT, "env": env}, speculation="none").env == {"LLAMA_ARG_SPEC_TYPE": "none"}


def test_a_draft_model_is_added_and_taken_out_again() -> None:
    added = change_of({"args": EXPLICIT}, speculation="draft-simple", draft="Q4", speculation_tokens=5)
    stated = ("--spec-type", "draft-simple", "-md", "/models/q4.gguf", "-ngld", "all", "--spec-draft-n-max", "5")

    assert added.args is not None
    again = read(template_of({"args": list(added.args)}), {}).candidate
    assert (again.speculation, again.draft, again.speculation_tokens, again.extra_args) == ("draft-simple", "Q4", 5, ())

    gone = change_of(
        {"args": [*EXPLICIT, *stated, "-bs"]},
        speculation="none",
        draft=None,
        speculation_tokens=None,
        backend_sampling=False,
    )
    assert gone.args == (*EXPLICIT, "--spec-type", "none")


def test_a_draft_model_of_a_variable_is_emptied() -> None:
    env = [{"name": "LLAMA_ARG_SPEC_DRAFT_MODEL", "value": "/models/q4.gguf"}]
    change = change_of({"args": EXPLICIT, "env": env}, speculation="none", draft=None)

    assert change.env == {"LLAMA_ARG_SPEC_DRAFT_MODEL": ""}


def test_a_cap_for_each_slot_gives_way_to_the_stated_pool() -> None:
    args = [*EXPLICIT, "--kv-unified-per-slot", "1024"]

    assert change_of({"args": args}).args == (*EXPLICIT, "--kv-unified-per-slot", "0")


def test_other_weights_are_another_path() -> None:
    change = change_of({"args": EXPLICIT}, variant="Q4")

    assert change.sentences == ("-m /models/q8.gguf → /models/q4.gguf in args",)


def test_an_early_build_gets_flags_that_it_knows() -> None:
    container = {
        "image": "ghcr.io/ggml-org/llama.cpp:server-cuda-b6000",
        "args": ["-m", "/models/q8.gguf", "-np", "2", "-c", "4096", "-fa"],
    }
    on = change_of(container, parallel_slots=4)
    assert on.args is not None
    assert "-fit" not in on.args
    assert "--cache-ram" not in on.args
    assert "-fa" in on.args

    off = change_of(container, flash_attention="off")
    assert off.args is not None
    assert "-fa" not in off.args
    assert "-fa on taken out of args" in off.sentences


def test_the_address_and_the_log_stay_the_persons_own() -> None:
    change = change_of({"args": [*EXPLICIT, "--host", "$(POD_IP)", "--no-slots", "-lv", "2"]}, batch_size=512)

    assert change.args is not None
    assert change.args[-5:] == ("--host", "$(POD_IP)", "--no-slots", "-lv", "2")


def test_a_foreign_candidate_is_refused() -> None:
    with pytest.raises(ForeignCandidateError, match="--jinja"):
        change_of({"args": EXPLICIT}, extra_args=("--jinja",))


# ------------------------------------------------------------------- ready to be applied


def test_the_component_is_complete_and_says_what_it_does() -> None:
    change = change_of(FROM_MAPS, MAPS, parallel_slots=8)
    files = kustomize_files(change, deployment="llm", namespace="ai", replicas=3, header=["slotune: 8 slots"])

    assert list(files) == ["kustomization.yaml", "deployment.yaml", "configmap-numbers.yaml", "configmap-flags.yaml"]
    first = files["kustomization.yaml"]
    assert first.startswith("# slotune: 8 slots\n")
    assert "# SLOTS 4 → 8 in ConfigMap numbers, key slots\n" in first
    assert "# ConfigMap flags may serve other pods too" in first
    component = yaml.safe_load(first)
    assert component["kind"] == "Component"
    assert component["patches"] == [
        {"path": "deployment.yaml", "target": {"kind": "Deployment", "name": "llm"}},
        {"path": "configmap-numbers.yaml", "target": {"kind": "ConfigMap", "name": "numbers"}},
        {"path": "configmap-flags.yaml", "target": {"kind": "ConfigMap", "name": "flags"}},
    ]
    deployment = yaml.safe_load(files["deployment.yaml"])
    assert deployment["metadata"] == {"name": "llm", "namespace": "ai"}
    assert deployment["spec"]["replicas"] == 3
    assert deployment["spec"]["template"]["spec"]["containers"][0]["name"] == "llama"
    assert yaml.safe_load(files["configmap-numbers.yaml"])["data"] == {"slots": "8"}


def test_a_key_in_the_manifest_is_rolled_out_and_never_handed_around() -> None:
    args = ["--api-key", "hunter2", *EXPLICIT, "--fork-token=hunter2", "--api-key", "$(KEY)"]
    change = change_of({"args": args}, parallel_slots=8, context_per_slot=1024)

    assert change.patched_template(template_of({}))["spec"]["containers"][0]["args"].count("hunter2") == 1
    assert "hunter2" not in repr(change)
    files = kustomize_files(change, deployment="llm")
    assert not any("hunter2" in text for text in files.values())
    assert "where REDACTED stands" in files["kustomization.yaml"]
    (container,) = yaml.safe_load(files["deployment.yaml"])["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["--api-key", "REDACTED"]
    assert container["args"][-3:] == ["--fork-token=REDACTED", "--api-key", "$(KEY)"]
    assert (
        container["args"][2:-3]
        == change_of({"args": EXPLICIT}, parallel_slots=8, context_per_slot=1024).container_patch()["args"]
    )


def test_the_template_that_is_given_stays_as_it_is() -> None:
    template = template_of({"args": EXPLICIT})
    before = copy.deepcopy(template)

    change_of({"args": EXPLICIT}, parallel_slots=9).patched_template(template)

    assert template == before
    with pytest.raises(KeyError):
        change_of({"args": EXPLICIT}).patched_template({"spec": {"containers": [{"name": "other"}]}})


# ------------------------------------------------------------------- the law


VALUES = {
    "-np --parallel LLAMA_ARG_N_PARALLEL": ["1", "3", "-1", "8"],
    "-c --ctx_size LLAMA_ARG_CTX_SIZE": ["4096", "10000", "0"],
    "-b --batch-size LLAMA_ARG_BATCH": ["512", "2048"],
    "-ub --ubatch-size LLAMA_ARG_UBATCH": ["128", "512"],
    "-ngl --n-gpu-layers LLAMA_ARG_N_GPU_LAYERS": ["99", "-1", "all"],
    "-fa --flash-attn LLAMA_ARG_FLASH_ATTN": ["on", "off", "1", "auto"],
    "-ctk --cache-type-k LLAMA_ARG_CACHE_TYPE_K": ["f16", "q8_0"],
    "-cram --cache-ram LLAMA_ARG_CACHE_RAM": ["0", "4096"],
    "--cache-reuse --cache_reuse LLAMA_ARG_CACHE_REUSE": ["0", "256"],
    "-fit --fit LLAMA_ARG_FIT": ["on", "off"],
    "-t --threads LLAMA_ARG_THREADS": ["4", "0"],
    "-tb --threads-batch LLAMA_NONE": ["4", "2"],
    "--kv-unified-per-slot --kv_unified_per_slot LLAMA_ARG_KV_UNIFIED_PER_SLOT": ["1024"],
    "--spec-type --spec_type LLAMA_ARG_SPEC_TYPE": ["none", "ngram-mod"],
    "-a --alias LLAMA_ARG_ALIAS": ["chat"],
    "-n --predict LLAMA_ARG_N_PREDICT": ["512"],
}
SWITCHES = [
    "-kvu -no-kvu LLAMA_ARG_KV_UNIFIED LLAMA_ARG_NO_KV_UNIFIED",
    "--cache-prompt --no-cache-prompt LLAMA_ARG_CACHE_PROMPT LLAMA_ARG_NO_CACHE_PROMPT",
    "--cache-idle-slots --no-cache-idle-slots LLAMA_ARG_CACHE_IDLE_SLOTS LLAMA_ARG_NO_CACHE_IDLE_SLOTS",
    "--jinja --no-jinja LLAMA_ARG_JINJA LLAMA_ARG_NO_JINJA",
]


@dataclass
class Draft:
    """A container that grows setting by setting, and the ConfigMaps that it takes some of them from."""

    command: list[str] = field(default_factory=list)
    args: list[str] = field(default_factory=lambda: ["-m", "/models/q8.gguf"])
    env: list[dict[str, Any]] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    whole: dict[str, str] = field(default_factory=dict)

    def key(self, name: str, value: str) -> None:
        self.keys[name.lower()] = value
        self.env.append({"name": name, "valueFrom": {"configMapKeyRef": {"name": "keys", "key": name.lower()}}})

    def literal(self, name: str, value: str) -> None:
        self.env.append({"name": name, "value": value})

    def state(self, place: str, words: tuple[str, ...], variable: str, other: tuple[str, ...]) -> None:
        reference = f"V{len(self.env)}"
        match place:
            case "args":
                self.args += words
            case "args twice":
                self.args += [*other, *words]
            case "command":
                self.command += words
            case "env":
                self.literal(variable, words[-1])
            case "key":
                self.key(variable, words[-1])
            case "whole":
                self.whole[variable] = words[-1]
            case "reference":
                self.literal(reference, words[-1])
                self.args += [words[0], f"$({reference})"]
            case "key in args":
                self.key(reference, words[-1])
                self.args += [words[0], f"$({reference})"]


WORDS = ["", "args", "args twice", "command"]
PLACES = st.sampled_from([*WORDS, "", "env", "key", "whole", "reference", "key in args"])
SWITCH_PLACES = st.sampled_from([*WORDS, "env", "whole"])


@st.composite
def servers(draw: st.DrawFn) -> tuple[dict[str, Any], ConfigMaps]:
    draft = Draft()
    for names, values in VALUES.items():
        short, long, variable = names.split()
        spelled, other = draw(st.permutations([short, long]))
        value, overruled = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        draft.state(draw(PLACES), (spelled, value), variable, (other, overruled))
    for names in SWITCHES:
        on, off, *variables = names.split()
        spelled, other = draw(st.permutations([on, off]))
        place, variable = draw(SWITCH_PLACES), draw(st.sampled_from(variables))
        words = (draw(st.sampled_from(["true", "0", "on"])),) if place in {"env", "whole"} else (spelled,)
        draft.state(place, words, variable, (other,))
    draft.args += draw(st.sampled_from([[], ["--temp", "-0.5"], ["--fork", "a", "b"], ["--api-key", "$(KEY)"]]))
    build = draw(st.sampled_from(["", "-b11434", "-b8900", "-b20000"]))
    container: dict[str, Any] = {
        "image": f"ghcr.io/ggml-org/llama.cpp:server{build}",
        "args": draft.args,
        "env": draft.env,
        "envFrom": [{"configMapRef": {"name": "whole"}}],
    }
    if draft.command or draw(st.booleans()):
        container["command"] = ["/app/llama-server", *draft.command]
    if draw(st.booleans()):
        container["resources"] = {"limits": {"cpu": "6"}}
    return container, {"keys": draft.keys, "whole": draft.whole}


@st.composite
def wishes(draw: st.DrawFn) -> dict[str, Any]:
    ram = draw(st.sampled_from([0, 2048]))
    batch = draw(st.sampled_from([512, 4096]))
    return {
        "variant": draw(st.sampled_from(["Q8", "Q4"])),
        "parallel_slots": draw(st.integers(1, 32)),
        "context_per_slot": 256 * draw(st.integers(1, 16)),
        "kv_unified": draw(st.booleans()),
        "batch_size": batch,
        "ubatch_size": draw(st.sampled_from([256, 512])),
        "cache_type_k": draw(st.sampled_from(["f16", "q8_0"])),
        "flash_attention": draw(st.sampled_from(["on", "auto", "off"])),
        "cache_prompt": draw(st.booleans()),
        "cache_ram_mib": ram,
        "cache_idle_slots": ram != 0 and draw(st.booleans()),
        "cache_reuse": draw(st.sampled_from([0, 64])),
        "gpu_layers": draw(st.sampled_from(["all", "auto", "20"])),
        "backend_sampling": draw(st.booleans()),
        **draw(
            st.sampled_from(
                [
                    {"speculation": "none"},
                    {"speculation": "ngram-mod", "speculation_tokens": 16},
                    {"speculation": "ngram-cache"},
                    {"speculation": "draft-simple", "draft": "tiny", "speculation_tokens": 5},
                ]
            )
        ),
    }


def as_started(candidate: Candidate, baseline: Baseline) -> Candidate:
    """With the threads that production gets where the candidate leaves them open."""
    return candidate if candidate.threads is not None else replace(candidate, threads=baseline.threads)


@settings(max_examples=200, deadline=None)
@given(servers(), wishes(), st.booleans())
def test_whoever_reads_the_changed_server_reads_the_candidate(
    server: tuple[dict[str, Any], ConfigMaps], wish: dict[str, Any], only_pod: bool
) -> None:
    container, maps = server
    template = template_of(container)
    baseline = read(template, maps)
    candidate = replace(baseline.candidate, **wish)
    assume(not unsupported(candidate, baseline.defaults))
    pod = PodTemplate.model_validate(template)
    llama = pod.container("llama")
    assert llama is not None

    change = compose_change(pod, llama, baseline, candidate, config_maps=maps, only_pod=only_pod)
    patched = change.patched_template(template)
    after = read(patched, change.patched_config_maps(maps))

    assert after.candidate == as_started(candidate, baseline)
    assert (after.host, after.port, after.alias, after.secrets) == (
        baseline.host,
        baseline.port,
        baseline.alias,
        baseline.secrets,
    )
    assert patched["spec"]["containers"][1] == template["spec"]["containers"][1]
    assert not (only_pod and change.config_maps)
    server_after = PodTemplate.model_validate(patched)
    llama_after = server_after.container("llama")
    assert llama_after is not None
    again = compose_change(
        server_after,
        llama_after,
        after,
        after.candidate,
        config_maps=change.patched_config_maps(maps),
        only_pod=only_pod,
    )
    assert again.is_empty
