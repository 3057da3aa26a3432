"""From objects to a question: what asks another one, what does not, and that the answer is not the next baseline."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from slotune.controller.cluster import Object
from slotune.controller.kinds import DEPLOYMENT, LLAMA_DEPLOYMENT
from slotune.controller.references import References, gather_references, parse
from slotune.controller.store import Store
from slotune.controller.understanding import (
    NotUnderstood,
    Surveyed,
    Understood,
    refused_unseen,
    survey_digest,
    understand,
)
from slotune.llama.build_defaults import NEWEST_KNOWN
from slotune.llama.build_number import build_of_image
from slotune.tuning.possible_builds import possible_builds
from slotune.tuning.trial_objects import candidate_hash, settings_of
from tests.controller.fake_cluster import FakeCluster
from tests.controller.fake_node import tiny_model
from tests.controller.manifests import ARGS, GPU_CLASS, NAMESPACE, config_map, owned, target, targeting, workload

SURVEYED = Surveyed({"F16": tiny_model("F16")}, 11549)
ARGS_AT = "template__spec__containers__0__args"
SINCE = "2026-03-02T12:00:00Z"


async def gathered(*manifests: Object, status: Object | None = None, name: str = "chat") -> References:
    cluster, store = FakeCluster(), Store()
    for manifest in (GPU_CLASS, *manifests):
        store.put(cluster.put(manifest))
    if status is not None:
        store.put(cluster.change(LLAMA_DEPLOYMENT, NAMESPACE, name, status=status))
    raw = store.get(LLAMA_DEPLOYMENT, NAMESPACE, name)
    assert raw is not None
    return await gather_references(raw, store, cluster)


async def understood(*manifests: Object, surveyed: Surveyed = SURVEYED, **more: Any) -> Understood:
    found = understand(await gathered(*manifests, **more), surveyed)
    assert isinstance(found, Understood), found
    return found


# ------------------------------------------------------------------- the same question


@pytest.mark.parametrize(
    "changes",
    [
        {"rollout__mode": "Auto"},
        {"observe__prometheus": {"url": "http://prometheus:9090"}},
        {"retune__cooldown": "1h"},
        {"template__spec__containers__0__readinessProbe": {"httpGet": {"path": "/health", "port": 8080}}},
        {"template__metadata__labels": {"app": "chat", "team": "search"}},
        {"template__metadata__annotations": {"note": "for people"}},
    ],
    ids=str,
)
async def test_what_concerns_only_production_asks_no_other_question(changes):
    before, after = await understood(owned()), await understood(owned(**changes))
    assert after.inputs == before.inputs
    assert after.space.context == before.space.context


@pytest.mark.parametrize(
    "changes",
    [
        {"slo__ttftP95": "2s"},
        {"workload__inline__output__tokens": 17},
        {"measurement__runs": 3},
        {"template__spec__containers__0__image": "ghcr.io/ggml-org/llama.cpp:server-b11550"},
        {"template__spec__containers__0__resources": {"limits": {"memory": "4Gi"}}},
        {"template__spec__nodeSelector": {"disk": "fast"}},
        {"rerun": {"reason": "new driver"}},
    ],
    ids=str,
)
async def test_what_a_measurement_depends_on_asks_every_question_anew(changes):
    before, after = await understood(owned()), await understood(owned(**changes))
    assert after.space.context != before.space.context
    assert after.inputs != before.inputs


@pytest.mark.parametrize(
    "changes",
    [
        {"gpuClasses__0__maxReplicas": 5},
        {"search__space__parallelSlots": [1, 2]},
        {"search__budget__trials": 9},
        {"replicas": 3},
        {ARGS_AT: [*ARGS[:3], "2", *ARGS[4:]]},
    ],
    ids=str,
)
async def test_another_search_may_use_what_was_measured_for_the_last_one(changes):
    before, after = await understood(owned()), await understood(owned(**changes))
    assert after.space.context == before.space.context
    assert after.inputs != before.inputs


ENV_AT, ENV_FROM_AT = "template__spec__containers__0__env", "template__spec__containers__0__envFrom"
WHOLE = {ENV_FROM_AT: [{"configMapRef": {"name": "settings"}}]}
ONE = {ENV_AT: [{"name": "MMQ", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "GGML_CUDA_FORCE_MMQ"}}}]}


@pytest.mark.parametrize("server", [WHOLE, ONE], ids=["envFrom", "valueFrom"])
async def test_another_environment_asks_every_question_anew_and_another_flag_or_key_does_not(server):
    async def context(**data: str) -> str:
        return (await understood(owned(**server), config_map("settings", **data))).space.context

    before = await context(GGML_CUDA_FORCE_MMQ="0")
    assert await context(GGML_CUDA_FORCE_MMQ="1") != before
    assert await context(GGML_CUDA_FORCE_MMQ="0", LLAMA_API_KEY="hush", LLAMA_ARG_THREADS_HTTP="3") == before


CLAIMED = {
    "template__spec__resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpus"}],
    "template__spec__containers__0__resources": {"claims": [{"name": "gpu"}]},
}


@pytest.mark.parametrize(("count", "refused"), [(1, False), (2, True), (None, False)])
async def test_a_claim_for_more_than_one_device_is_refused_where_it_can_be_read(count, refused):
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "count": count}}
    claims = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpus", "namespace": NAMESPACE},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    found = understand(await gathered(owned(**CLAIMED), *([claims] if count else [])), SURVEYED)
    assert isinstance(found, NotUnderstood) == refused
    if isinstance(found, NotUnderstood):
        assert found.reason == "Refused"
        assert "ResourceClaimTemplate gpus spec.spec.devices is 2 of gpu.example.com" in found.message


async def test_other_weights_under_the_same_path_are_another_question():
    other = Surveyed({"F16": tiny_model("other")}, 11549)
    assert (await understood(owned(), surveyed=other)).space.context != (await understood(owned())).space.context


async def test_a_survey_is_named_after_what_it_looks_at():
    plain = survey_digest(await gathered(owned()))
    assert survey_digest(await gathered(owned(slo__ttftP95="9s", **{ARGS_AT: [*ARGS, "--no-webui"]}))) == plain
    moved = owned(models__0__path="/models/x.gguf", **{ARGS_AT: ["-m", "/models/x.gguf", *ARGS[2:]]})
    for changed in (moved, owned(rerun={"reason": "again"}), owned(template__spec__containers__0__image="other:1")):
        assert survey_digest(await gathered(changed)) != plain


# ------------------------------------------------------------------- before anybody looked at the weights

SERVERS = sorted((Path(__file__).parent.parent / "tuning" / "servers").glob("*.yaml"))
BUILDS = (None, 5000, 6000, 7000, 9500, 11549)
CLASS_OF_SERVERS = {**GPU_CLASS, "spec": {"pricePerHour": "1", "resourceName": "nvidia.com/gpu"}}


def of_the_corpus(path: Path) -> list[Object]:
    """A server as people run them, with a LlamaDeployment."""
    text = path.read_text()
    documents = [*yaml.safe_load_all(text)]
    for one in documents:
        one["metadata"] |= {"namespace": NAMESPACE, **({"name": "web"} if one["kind"] == "Deployment" else {})}
    container = re.search(r"^# container: (.*)$", text, re.MULTILINE)
    named = {} if container is None else {"container": container[1]}
    about = targeting(models=[{"name": "Q8", "path": "/models/model.gguf"}], **named)
    return [CLASS_OF_SERVERS, *documents, about]


def said_after(references: References, model: str = "F16", builds: Iterable[int | None] = BUILDS) -> set[str | None]:
    """Everything that may be said once the weights were looked at; None is a search."""
    facts = {model: tiny_model(model)}
    found = [understand(references, Surveyed(facts, build)) for build in builds]
    return {one.message if isinstance(one, NotUnderstood) else None for one in found}


def assert_just_as_certain(before: NotUnderstood | None, after: set[str | None]) -> None:
    """What is told before is told after, whatever is found; and what is told after each time is told before."""
    if before is None:
        assert None in after or not set.intersection(*(set(str(one).split("; ")) for one in after))
    else:
        problems = set(before.message.partition(": ")[2].split("; "))
        assert all(one is not None and problems <= set(one.partition(": ")[2].split("; ")) for one in after)


@pytest.mark.parametrize("path", SERVERS, ids=lambda path: path.stem)
async def test_what_is_refused_before_the_weights_are_seen_is_refused_in_the_same_words_after_it(path):
    references = await gathered(*of_the_corpus(path))
    if references.manifests is None:
        assert references.missing  # which is told before anything of it is read
        return
    tagged = build_of_image(references.manifests.container.image)
    before = refused_unseen(references)
    assert_just_as_certain(before, said_after(references, "Q8", BUILDS if tagged is None else (None, NEWEST_KNOWN)))


@pytest.mark.parametrize(
    "args",
    [["--no-mmap"], ["-kvu"], ["-fa", "-b", "512"], ["-cd", "1"], ["-np", "nine"], ["--no-mmap", "-b", "-cram", "0"]],
    ids=" ".join,
)
async def test_no_kind_of_build_is_forgotten_where_an_image_does_not_say_its_own(args):
    image = {"template__spec__containers__0__image": "llama.cpp:server", ARGS_AT: ["-m", "/models/f16.gguf", *args]}
    references = await gathered(owned(**image))
    near = {build for one in possible_builds("llama.cpp:server") if one for build in (one - 1, one, one + 1)}
    assert_just_as_certain(refused_unseen(references), said_after(references, builds=(None, *near)))


# ------------------------------------------------------------------- today


async def rolled_out(place: str | None, *, candidate: int = 4, other: str | None = None) -> Understood:
    """A target that runs our answer, with a status that says so at ``place``."""
    before = await understood(target(), targeting())
    winner = next(one for one in before.space.candidates if one.parallel_slots == candidate)
    digest = other or candidate_hash(winner)
    baseline = {
        "candidateHash": candidate_hash(before.space.baseline),
        "candidate": settings_of(before.space.baseline).to_manifest(),
        "gpuClass": "cpu",
        "replicas": 2,
    }
    status: Object = {"baseline": baseline, "conditions": [], "progress": {"inputs": before.inputs}}
    if place == "rollout":
        status["rollout"] = {"candidateHash": digest, "stage": "Applying", "startedAt": SINCE, "since": SINCE}
    elif place is not None:
        status[place] = {"candidateHash": digest, "time": SINCE}
    args = before.baseline.flags_for(winner)
    changed = target(
        replicas=1,
        template__spec__containers__0__args=args,
        template__metadata__annotations={"slotune.dev/candidate": candidate_hash(winner)},
    )
    return await understood(changed, targeting(), status=status)


@pytest.mark.parametrize("place", ["rollout", "applied", "lastGood"])
async def test_an_answer_that_was_rolled_out_does_not_become_the_next_baseline(place):
    before, after = await understood(target(), targeting()), await rolled_out(place)
    assert after.space.baseline == before.space.baseline
    assert after.space.replicas_today == 2
    assert after.inputs == before.inputs
    assert after.rolled_out is not None
    assert after.written.candidate.parallel_slots == 4


async def test_an_answer_that_somebody_else_rolled_out_is_what_runs_today():
    before, after = await understood(target(), targeting()), await rolled_out(None)
    assert after.space.baseline.parallel_slots == 4
    assert after.space.replicas_today == 1
    assert after.inputs != before.inputs


async def test_the_replicas_of_when_the_search_began_stay_while_its_question_does():
    before = await understood(target(), targeting())
    baseline = {
        "candidateHash": candidate_hash(before.space.baseline),
        "candidate": settings_of(before.space.baseline).to_manifest(),
        "gpuClass": "cpu",
        "replicas": 2,
    }
    status = {"baseline": baseline, "conditions": [], "progress": {"inputs": before.inputs}}
    moved = await understood(target(replicas=4), targeting(), status=status)
    assert moved.space.replicas_today == 2
    assert moved.inputs == before.inputs
    fresh = await understood(target(replicas=4), targeting(slo__ttftP95="1s"), status=status)
    assert fresh.space.replicas_today == 4


# ------------------------------------------------------------------- what it refers to


async def test_of_several_with_one_target_each_but_the_oldest_has_a_rival():
    cluster, store = FakeCluster(), Store()
    for manifest in (GPU_CLASS, target(), targeting("b"), targeting("a"), targeting("other", "elsewhere")):
        store.put(cluster.put(manifest))
    store.put(cluster.change(LLAMA_DEPLOYMENT, NAMESPACE, "a", metadata={"labels": {"x": "y"}}))

    async def rival(name: str) -> str | None:
        raw = store.get(LLAMA_DEPLOYMENT, NAMESPACE, name)
        assert raw is not None
        return (await gather_references(raw, store, cluster)).rival

    assert [await rival(name) for name in ("a", "b", "other")] == [None, "a", None]  # of one second the name decides
    dying = store.get(LLAMA_DEPLOYMENT, NAMESPACE, "a")
    assert dying is not None
    cluster.remove(LLAMA_DEPLOYMENT, NAMESPACE, "a")
    store.put(cluster.find(LLAMA_DEPLOYMENT, NAMESPACE, "a") or {})
    assert await rival("b") is None


async def test_only_what_is_needed_is_read():
    cluster, store = FakeCluster(), Store()
    env = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k"}}}]
    for manifest in (GPU_CLASS, target(template__spec__containers__0__env=env), targeting(), workload()):
        store.put(cluster.put(manifest))
    raw = store.get(LLAMA_DEPLOYMENT, NAMESPACE, "chat")
    assert raw is not None
    await gather_references(raw, store, cluster)
    assert cluster.requests == []  # what is watched is known, and a server's keys are none of our business


async def test_a_spec_that_is_not_valid_gives_sentences_and_nothing_else():
    deployment, _, problems = parse(owned(slo__ttftP95="soon"))
    assert deployment is None
    assert any("spec.slo.ttftP95" in problem and "soon" in problem for problem in problems)


async def test_a_status_of_another_slotune_is_read_as_none_but_for_what_was_borrowed():
    restore = {
        "name": "web",
        "uid": "u",
        "resourceVersion": "1",
        "replicas": 2,
        "templateDigest": "0123456789abcdef",
        "since": SINCE,
        "until": SINCE,
    }
    manifest = targeting() | {"status": {"recommendation": "of another kind", "phase": "Tuned", "restore": restore}}
    _, status, problems = parse(manifest)
    assert problems == ()
    assert status.phase is None
    assert status.restore is not None
    assert status.restore.replicas == 2


async def test_weights_that_fit_no_request_are_said_and_nothing_raises():
    found = understand(
        await gathered(owned(workload__inline__prompts={"synthetic": {"inputTokens": {"mean": 9000}}})), SURVEYED
    )
    assert isinstance(found, NotUnderstood)
    assert found.reason == "Refused"


async def test_a_target_is_read_once_and_then_followed():
    cluster, store = FakeCluster(), Store()
    for manifest in (GPU_CLASS, targeting()):
        store.put(cluster.put(manifest))
    cluster.put(target())
    raw = store.get(LLAMA_DEPLOYMENT, NAMESPACE, "chat")
    assert raw is not None
    for _ in range(2):
        assert (await gather_references(raw, store, cluster)).target is not None
    assert [(one.verb, one.kind) for one in cluster.requests] == [("get", DEPLOYMENT.name)]
