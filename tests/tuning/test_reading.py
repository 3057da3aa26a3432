"""Manifests become a problem: what runs today, what is owed, what may be tried, where the weights lie."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from slotune.api.manifests import InvalidManifest, load_manifests
from slotune.load.demand import Arrivals, Demand, SyntheticPrompts
from slotune.load.jsonl import InputFileError
from slotune.load.trace import build_trace
from slotune.search.trial import Trial, TrialResult
from slotune.tuning.errors import InvalidInputError
from slotune.tuning.fitting import without_what_cannot_fit
from slotune.tuning.machine import one_class, this_machine
from slotune.tuning.reading import Reading, read_problem
from slotune.tuning.traffic import busiest_part, demand_of
from slotune.verdict.verdicts import Outcome, Verdict
from tests.commands.manifests import manifest
from tests.tiny_models import write_tiny_model

ARGS = "template__spec__containers__0__args"
Read = Callable[..., Reading]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def _read(*, models_dir: Path | None = tmp_path, engine: str = "e1", **changes: Any) -> Reading:
        return read_problem(load_manifests([manifest(tmp_path, **changes)]), models_dir=models_dir, engine=engine)

    return _read


# ------------------------------------------------------------------- what runs today


def test_the_servers_own_flags_are_the_baseline(read):
    problem = read().problem
    assert problem.baseline in problem.candidates
    assert (problem.baseline.parallel_slots, problem.baseline.threads, problem.baseline.cache_ram_mib) == (1, 1, 0)
    assert problem.replicas_today == 1
    assert problem.hardware["cpu"].price_per_hour == Decimal("0.10")
    assert not problem.hardware["cpu"].is_gpu


def test_flags_in_command_and_in_variables_count_and_arguments_win(read):
    container = {
        "name": "server",
        "command": ["/app/llama-server", "-np", "3", "-c", "768"],
        "args": ["-m", "/models/f16.gguf", "-t", "1"],
        "env": [{"name": "LLAMA_ARG_N_PARALLEL", "value": "7"}, {"name": "LLAMA_ARG_UBATCH", "value": "64"}],
    }
    baseline = read(template__spec__containers__0=container).problem.baseline
    assert (baseline.parallel_slots, baseline.context_per_slot, baseline.ubatch_size) == (3, 256, 64)


def with_config_map(tmp_path: Path, container: dict[str, Any], data: dict[str, str] | None) -> Path:
    file = manifest(tmp_path, template__spec__containers__0=container)
    if data is not None:
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "flags"}, "data": data}
        file.write_text(file.read_text() + "---\n" + yaml.safe_dump(config))
    return file


FROM_MAP = {
    "name": "server",
    "args": ["-m", "/models/f16.gguf", "-np", "1", "-c", "256", "-t", "1"],
    "env": [{"name": "LLAMA_ARG_UBATCH", "valueFrom": {"configMapKeyRef": {"name": "flags", "key": "ub"}}}],
}
ALL_FROM_MAP = {
    "name": "server",
    "args": ["-m", "/models/f16.gguf", "-np", "1", "-c", "256", "-t", "1"],
    "envFrom": [{"configMapRef": {"name": "flags"}}],
}


def test_flags_in_config_maps_are_part_of_what_runs_today(tmp_path):
    for container, data in ((FROM_MAP, {"ub": "64"}), (ALL_FROM_MAP, {"LLAMA_ARG_UBATCH": "64"})):
        file = with_config_map(tmp_path, container, data)
        baseline = read_problem(load_manifests([file]), models_dir=tmp_path, engine="").problem.baseline
        assert baseline.ubatch_size == 64


@pytest.mark.parametrize(
    ("container", "word"), [(FROM_MAP, "LLAMA_ARG_UBATCH"), (ALL_FROM_MAP, "flags")], ids=["one key", "all keys"]
)
def test_a_flag_whose_value_cannot_be_read_is_refused_not_guessed(tmp_path, container, word):
    file = with_config_map(tmp_path, container, None)
    with pytest.raises(InvalidInputError, match=word):
        read_problem(load_manifests([file]), models_dir=tmp_path, engine="")


def test_a_cpu_limit_is_the_threads_of_trials_and_of_the_answer(read):
    container = {
        "name": "server",
        "args": ["-m", "/models/f16.gguf", "-np", "1", "-c", "256"],
        "resources": {"limits": {"cpu": "3500m"}},
    }
    reading = read(template__spec__containers__0=container)
    assert reading.baseline.threads == 3
    flags = reading.baseline.flags_for(reading.problem.baseline)
    assert flags[flags.index("-t") + 1] == "3"


def test_an_address_that_the_manifest_leaves_to_the_image_stays_with_the_image(read):
    reading = read()
    flags = reading.baseline.flags_for(reading.problem.baseline)
    assert not {"--host", "--port", "--alias"} & set(flags)


def test_variables_in_arguments_are_expanded_as_kubelet_does(read):
    container = {
        "name": "server",
        "args": ["-m", "/models/f16.gguf", "-np", "$(SLOTS)", "-c", "768", "-t", "1", "--seed", "$$(SLOTS)"],
        "env": [{"name": "SLOTS", "value": "3"}],
    }
    baseline = read(template__spec__containers__0=container).problem.baseline
    assert baseline.parallel_slots == 3
    assert baseline.extra_args[-1] == "$$(SLOTS)"  # an escaped name stays as it is written


def test_an_api_key_is_neither_measured_with_nor_lost(read):
    args = ["-m", "/models/f16.gguf", "-np", "1", "-c", "256", "-t", "1", "--api-key", "hush"]
    reading = read(**{ARGS: args})
    assert "hush" not in repr(reading)
    flags = reading.baseline.flags_for(reading.problem.baseline)
    assert flags[-2:] == ["--api-key", "REDACTED"]
    assert any("--api-key" in note for note in reading.notes)


REACH = ["--api-key-file", "/keys/k", "--ssl-key-file", "/tls/k", "--ssl-cert-file", "/tls/c", "--api-prefix", "/chat"]


def test_who_reaches_a_server_and_how_is_not_measured_with_said_and_kept(read):
    args = ["-m", "/models/f16.gguf", "-np", "1", "-c", "256", "-t", "1", "--seed", "7"]
    reading = read(**{ARGS: [*args, *REACH]})
    assert reading.problem.baseline.extra_args == ("--seed", "7")
    assert reading.baseline.flags_for(reading.problem.baseline)[-len(REACH) :] == REACH
    (note,) = [one for one in reading.notes if "--api-prefix" in one]
    assert all(flag in note for flag in REACH[::2])
    assert "measured without it" in note


def test_variables_of_these_stay_variables(read):
    args = ["-m", "/models/f16.gguf", "-np", "1", "-c", "256", "-t", "1"]
    env = [{"name": "LLAMA_ARG_API_KEY_FILE", "value": "/keys/k"}, {"name": "LLAMA_ARG_API_PREFIX", "value": "/chat"}]
    reading = read(**{ARGS: args, ARGS.replace("args", "env"): env})
    assert reading.problem.baseline.extra_args == ()
    assert "/keys/k" not in reading.baseline.flags_for(reading.problem.baseline)
    assert any("LLAMA_ARG_API_KEY_FILE, LLAMA_ARG_API_PREFIX: measured without it" in note for note in reading.notes)


def test_a_server_behind_a_socket_is_measured_at_a_port_and_keeps_its_socket(read):
    args = ["-m", "/models/f16.gguf", "-np", "1", "-c", "256", "-t", "1", "--host", "/run/llama.sock"]
    reading = read(**{ARGS: args})
    flags = reading.baseline.flags_for(reading.problem.baseline)
    assert flags[flags.index("--host") + 1] == "/run/llama.sock"
    assert any("/run/llama.sock" in note for note in reading.notes)


def test_a_key_by_reference_stays_a_reference_and_one_that_looks_like_a_flag_is_still_a_key(read):
    args = ["-m", "/models/f16.gguf", "-np", "1", "-c", "256", "-t", "1", "--api-key"]
    by_name = read(**{ARGS: [*args, "$(API_KEY)"]}).baseline
    assert by_name.secrets == ("--api-key", "$(API_KEY)")
    literal = read(**{ARGS: [*args, "-hush"]})
    assert "-hush" not in repr(literal)
    assert literal.baseline.secrets == ("--api-key", "REDACTED")


def test_an_address_that_only_the_node_knows_goes_back_as_it_was(read):
    args = ["-m", "/models/f16.gguf", "-np", "1", "-c", "256", "-t", "1", "--host", "$(POD_IP)"]
    reading = read(**{ARGS: args})
    flags = reading.baseline.flags_for(reading.problem.baseline)
    assert flags[flags.index("--host") + 1] == "$(POD_IP)"


def test_a_supervisor_in_front_of_the_server_is_looked_through(read):
    container = {
        "name": "server",
        "command": ["/sbin/tini", "--", "/app/llama-server", "-np", "3"],
        "args": ["-m", "/models/f16.gguf", "-c", "768", "-t", "1"],
    }
    assert read(template__spec__containers__0=container).problem.baseline.parallel_slots == 3


def test_the_busiest_ten_minutes_of_a_recording_are_its_peak():
    quiet = [float(t) for t in range(0, 86_400, 60)]
    busy = [43_200.25 + t * 0.5 for t in range(1200)]
    offsets = tuple(sorted(quiet + busy))
    peak = busiest_part(Arrivals("replay", offsets_s=offsets, output_tokens=tuple(range(len(offsets)))))
    assert peak.offsets_s[0] == 0
    assert (len(peak.offsets_s) - 1) / peak.offsets_s[-1] == pytest.approx(2.0, rel=0.02)
    assert len(peak.output_tokens) == len(peak.offsets_s)


def test_a_slow_steady_recording_is_not_made_faster_by_looking_for_its_peak():
    steady = tuple(t * 300.0 for t in range(288))
    peak = busiest_part(Arrivals("replay", offsets_s=steady))
    assert (len(peak.offsets_s) - 1) / peak.offsets_s[-1] == pytest.approx(1 / 300, rel=0.01)


def test_the_recorded_peak_is_replayed_at_the_rate_that_a_trial_asks_for():
    quiet = [float(t) for t in range(23 * 3600)]
    busy = [23 * 3600 + t / 10 for t in range(36_000)]
    peak = busiest_part(Arrivals("replay", offsets_s=tuple(quiet + busy)))
    demand = Demand(10.0, 4, peak, synthetic=SyntheticPrompts(8))
    for seed in range(4):
        trace = build_trace(demand, rate=10.0, seed=seed, requests=400)
        assert 400 / trace.window_end_s == pytest.approx(10.0, rel=0.05)


def test_several_gpu_classes_need_the_one_that_this_machine_is(tmp_path):
    classes = [{"name": "cpu"}, {"name": "big"}]
    file = manifest(tmp_path, gpuClasses=classes)
    file.write_text(file.read_text() + "---\n" + file.read_text().split("---")[0].replace("name: cpu", "name: big"))
    manifests = load_manifests([file])
    with pytest.raises(InvalidInputError, match=r"--gpu-class.*cpu, big"):
        one_class(manifests, None)
    assert one_class(manifests, "big") == "big"
    problem = read_problem(manifests, models_dir=tmp_path, engine="", gpu_class="big").problem
    assert {one.gpu_class for one in problem.candidates} == {"big"}


def test_the_same_machine_names_itself_alike():
    assert this_machine() == this_machine()


def test_fewer_replicas_allowed_than_run_today_is_a_contradiction(read):
    with pytest.raises(InvalidInputError) as caught:
        read(replicas=9)
    want = "spec.gpuClasses[0].maxReplicas is 2: 9 pods run today (spec.replicas) on cpu: allow at least as many"
    assert str(caught.value) == want
    with pytest.raises(InvalidInputError, match=r"^spec\.search\.maxReplicas is 8: 9 pods"):
        read(replicas=9, gpuClasses=[{"name": "cpu"}])


def test_what_only_the_operator_acts_on_is_said(read):
    notes = read(rollout={"mode": "Auto", "allowDowntime": True}).notes
    assert any("spec.rollout" in note for note in notes)
    assert not any("operator" in note for note in read().notes)


def test_a_suspended_deployment_starts_nothing(read):
    with pytest.raises(InvalidInputError, match=r"spec\.suspend"):
        read(suspend=True)


def test_two_variants_never_share_one_file(tmp_path):
    models = [{"name": "Q8", "path": "/q8/f16.gguf"}, {"name": "Q4", "path": "/q4/f16.gguf"}]
    args = ["-m", "/q8/f16.gguf", "-t", "1"]
    file = manifest(tmp_path, models=models, **{ARGS: args})
    with pytest.raises(InvalidInputError, match="same file as that of Q8"):
        read_problem(load_manifests([file]), models_dir=tmp_path, engine="")
    (tmp_path / "q4").mkdir()
    write_tiny_model(tmp_path / "q4" / "f16.gguf")
    reading = read_problem(load_manifests([file]), models_dir=tmp_path, engine="")
    assert reading.model_paths["Q4"] == tmp_path / "q4" / "f16.gguf"


def test_two_llamadeployments_never_share_one_target(tmp_path):
    file = manifest(tmp_path)
    gpu_class, deployment = yaml.safe_load_all(file.read_text())
    template = deployment["spec"].pop("template")
    del deployment["spec"]["replicas"]
    deployment["spec"]["targetRef"] = {"name": "prod"}
    template["metadata"] = {"labels": {"app": "x"}}
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "prod"}, "spec": spec}
    second = {**deployment, "metadata": {"name": "second"}}
    file.write_text(yaml.safe_dump_all([gpu_class, deployment, second, target]))
    with pytest.raises(InvalidManifest, match=r"targetRef\.name is prod: is the target of tiny already"):
        load_manifests([file], "tiny")


def test_a_flag_that_is_not_tuned_is_passed_through(read):
    args = ["-m", "/models/f16.gguf", "-np", "1", "-c", "256", "-t", "1", "--seed", "5"]
    problem = read(**{ARGS: args}).problem
    assert all("--seed" in one.extra_args for one in problem.candidates)


def test_the_winner_is_told_with_the_manifests_path_address_and_name(read):
    args = ["-m", "/models/f16.gguf", "--host", "0.0.0.0", "--port", "9000", "-t", "1", "-c", "256", "-np", "1"]
    reading = read(**{ARGS: args})
    flags = reading.baseline.flags_for(reading.problem.baseline)
    assert flags[flags.index("-m") + 1] == "/models/f16.gguf"
    assert flags[flags.index("--port") + 1] == "9000"
    assert "--alias" not in flags
    assert "-lv" not in flags


def test_an_existing_deployment_is_the_baseline_with_its_replicas(tmp_path):
    file = manifest(tmp_path)
    gpu_class, deployment = yaml.safe_load_all(file.read_text())
    template = deployment["spec"].pop("template")
    del deployment["spec"]["replicas"]
    deployment["spec"]["targetRef"] = {"name": "prod"}
    labels = {"app": "x"}
    template["metadata"] = {"labels": labels}
    target = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "prod"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    }
    file.write_text(yaml.safe_dump_all([gpu_class, deployment, target]))
    problem = read_problem(load_manifests([file]), models_dir=tmp_path, engine="").problem
    assert problem.replicas_today == 2
    assert problem.baseline.parallel_slots == 1


# ------------------------------------------------------------------- what may be tried


def test_the_users_values_bound_the_space(read):
    problem = read(search__space__parallelSlots=[2, 3]).problem
    assert {one.parallel_slots for one in problem.candidates if one != problem.baseline} == {2, 3}


def test_a_draft_model_drafts_and_answers_nothing(read, tmp_path):
    write_tiny_model(tmp_path / "small.gguf", layers=1)
    models = [
        {"name": "F16", "path": "/models/f16.gguf", "draft": "small"},
        {"name": "small", "path": "/models/small.gguf"},
    ]
    space = {"speculation": ["none", "draft-simple", "ngram-cache", "ngram-mod"], "speculationTokens": [3, 8]}
    problem = read(slo__quality=None, models=models, search__space=space).problem

    assert {one.variant for one in problem.candidates} == {"F16"}
    ways = {(one.speculation, one.draft, one.speculation_tokens) for one in problem.candidates}
    assert ways == {
        ("none", None, None),
        ("ngram-cache", None, None),
        *(("ngram-mod", None, tokens) for tokens in (3, 8)),
        *(("draft-simple", "small", tokens) for tokens in (3, 8)),
    }
    drafting = next(one for one in problem.candidates if one.draft)
    plain = replace(drafting, speculation="none", draft=None, speculation_tokens=None)
    assert problem.memory_bytes[drafting] > problem.memory_bytes[plain] + problem.models["small"].weights_bytes


def test_a_draft_model_that_runs_today_is_one_that_can_be_left_out(read, tmp_path):
    write_tiny_model(tmp_path / "small.gguf", layers=1)
    models = [
        {"name": "F16", "path": "/models/f16.gguf", "draft": "small"},
        {"name": "small", "path": "/models/small.gguf"},
    ]
    args = ["-m", "/models/f16.gguf", "-np", "1", "-c", "256", "-t", "1", "-md", "/models/small.gguf", "-bs"]
    problem = read(models=models, **{ARGS: args}).problem

    assert (problem.baseline.speculation, problem.baseline.draft) == ("draft-simple", "small")
    assert problem.baseline.backend_sampling
    assert any(one.draft is None and one.extra_args == () for one in problem.candidates)
    assert all(one.backend_sampling for one in problem.candidates), "not asked about, so as today"


def test_nothing_is_guessed_unless_it_is_asked_for(read):
    problem = read(search__space={}).problem

    assert {(one.speculation, one.draft, one.backend_sampling) for one in problem.candidates} == {("none", None, False)}


def test_without_a_word_about_quality_nothing_that_changes_answers_is_tried(read):
    problem = read(slo__quality=None, search__space__cacheTypes=None).problem
    assert {one.variant for one in problem.candidates} == {"F16"}
    assert {one.cache_type_k for one in problem.candidates} == {"f16"}


def test_what_cannot_fit_is_pruned_with_the_numbers_but_what_runs_today_stays(tmp_path):
    file = manifest(tmp_path, search__space__parallelSlots=[1, 64])
    file.write_text(file.read_text().replace("pricePerHour: '0.10'", "pricePerHour: '0.10'\n  memory: 8Mi"))
    problem = read_problem(load_manifests([file]), models_dir=tmp_path, engine="").problem
    assert problem.baseline in problem.candidates
    assert all(one.candidate.parallel_slots == 64 for one in problem.pruned)
    assert problem.pruned[0].code == "DoesNotFit"
    assert "MiB" in problem.pruned[0].reason


def test_the_first_start_corrects_the_compute_buffer_of_the_others(read):
    problem = read().problem
    before = dict(problem.memory_bytes)
    result = TrialResult(
        Trial(problem.baseline, 1.0),
        Verdict(Outcome.FAIL, "", "", 0.95),
        1.0,
        compute_buffer_bytes=900 * 2**20,
    )
    after = without_what_cannot_fit(problem, [result]).memory_bytes
    others = [one for one in problem.candidates if one != problem.baseline]
    assert all(after[one] > before[one] + 500 * 2**20 for one in others)


# ---------------------------------------------------------------------- where weights lie


def test_weights_are_found_through_the_pods_own_host_path(tmp_path):
    weights = tmp_path / "on-the-node"
    weights.mkdir()
    write_tiny_model(weights / "f16.gguf")
    file = manifest(tmp_path, model=False)
    gpu_class, deployment = yaml.safe_load_all(file.read_text())
    pod = deployment["spec"]["template"]["spec"]
    pod["containers"][0]["volumeMounts"] = [{"name": "m", "mountPath": "/models"}]
    pod["volumes"] = [{"name": "m", "hostPath": {"path": str(weights)}}]
    file.write_text(yaml.safe_dump_all([gpu_class, deployment]))
    reading = read_problem(load_manifests([file]), models_dir=None, engine="")
    assert reading.model_paths["F16"] == weights / "f16.gguf"


def test_weights_that_are_nowhere_are_named_with_every_place_that_was_looked_at(read, tmp_path):
    with pytest.raises(InvalidInputError, match=r"spec\.models\[0\]\.path.*--models-dir"):
        read(model=False, models_dir=tmp_path / "empty")


# -------------------------------------------------------------------------- what arrives


def demand(tmp_path: Path, **changes: Any):
    prefixed = {f"workload__inline__{name}": value for name, value in changes.items()}
    return demand_of(load_manifests([manifest(tmp_path, model=False, **prefixed)]))


def test_users_with_a_think_time_are_the_rate_that_they_can_reach_at_most(tmp_path):
    assert demand(tmp_path, load={"users": {"count": 40, "thinkTime": "20s"}}).peak_rate == 2.0


def test_a_recorded_trace_gives_the_rate_and_the_spacing(tmp_path):
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps({"timestamp_s": t}) + "\n" for t in (0, 1, 4, 5)))
    found = demand(tmp_path, load={"trace": {"file": {"path": "trace.jsonl"}}})
    assert found.peak_rate == pytest.approx(3 / 5)
    assert found.arrivals.process == "replay"
    assert found.arrivals.offsets_s == (0, 1, 4, 5)


def test_recorded_answer_lengths_count_for_the_context_and_on_average_for_the_bound(tmp_path):
    rows = [{"timestamp_s": t, "output_tokens": n} for t, n in ((0, 10), (1, 20), (2, 300))]
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = demand(tmp_path, load={"trace": {"file": {"path": "trace.jsonl"}}})
    assert (found.longest_answer, found.mean_answer) == (300, 110)


def test_a_gamma_process_keeps_its_burstiness(tmp_path):
    found = demand(tmp_path, arrivals={"process": "Gamma", "burstiness": "0.5"})
    assert (found.arrivals.process, found.arrivals.burstiness) == ("gamma", 0.5)


def test_real_prompts_come_from_a_file_beside_the_manifest(tmp_path):
    lines = [{"text": "hello"}, {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = demand(tmp_path, prompts={"file": {"path": "p.jsonl"}})
    assert len(found.prompts) == 2
    assert found.output_tokens == 4  # of a prompt that states none
    assert (found.longest_answer, found.mean_answer) == (9, 6.5)
    assert found.synthetic is None


def test_a_broken_prompt_file_names_the_line_and_never_the_prompt(tmp_path):
    (tmp_path / "p.jsonl").write_text('"my secret"\n{"nothing": 1}\n')
    with pytest.raises(InputFileError, match=r"p\.jsonl:2") as caught:
        demand(tmp_path, prompts={"file": {"path": "p.jsonl"}})
    assert "secret" not in str(caught.value)


def test_sampling_is_sent_in_llama_servers_own_names(tmp_path):
    found = demand(tmp_path, sampling={"temperature": "0.7", "topK": 40})
    assert dict(found.sampling) == {"temperature": 0.7, "top_k": 40}


# ----------------------------------------------------------------- which results are reused


@pytest.mark.parametrize(
    "change",
    [
        {"slo__ttftP95": "2s"},
        {"workload__inline__load": {"requestRate": "21"}},
        {"workload__inline__output": {"tokens": 5}},
        {"measurement__runs": 3},
        {"measurement__seed": 8},
        {"engine": "e2"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_changes_a_measurement_changes_the_trials_context(read, change):
    assert read().problem.context != read(**change).problem.context


@pytest.mark.parametrize(
    "change",
    [{"search__budget__trials": 99}, {"search__space__parallelSlots": [1, 4]}, {"replicas": 2}],
    ids=lambda change: next(iter(change)),
)
def test_what_only_changes_the_search_keeps_every_finished_trial(read, change):
    assert read().problem.context == read(**change).problem.context
