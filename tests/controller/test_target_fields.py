"""What a rollout sends to somebody else's Deployment: after it the server runs the candidate, after the way back what
ran before, and whatever slotune did not come to change is as it was."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.api.kubernetes_types import PodTemplate
from slotune.api.labels import ROLLOUT_MANAGER
from slotune.api.v1alpha1 import ModelVariant
from slotune.controller.cluster import Object
from slotune.controller.kinds import DEPLOYMENT
from slotune.llama.candidate import Candidate
from slotune.rollout.change import compose_change
from slotune.rollout.facts import template_digest
from slotune.rollout.tuned import tuned_deployment, untuned_deployment
from slotune.tuning.baseline import Baseline, read_baseline
from tests.controller.fake_cluster import FakeCluster
from tests.controller.manifests import ARGS, NAMESPACE, target
from tests.controller.simulation import drive

SIDECAR = {"name": "proxy", "image": "envoy", "args": ["-c", "x"], "env": [{"name": "A", "value": "1"}]}
SECRET = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
STRATEGY = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


def read(found: Object) -> tuple[Baseline, PodTemplate]:
    pod = PodTemplate.model_validate(found["spec"]["template"])
    container = pod.container("llama")
    assert container is not None
    variants = (ModelVariant(name="F16", path="/models/f16.gguf"),)
    context = {"F16": 1 << 20}
    return read_baseline(pod, container, {}, variants=variants, training_context=context, gpu_class="cpu"), pod


def candidate_of(found: Object, **changes: Any) -> Candidate:
    return replace(read(found)[0].candidate, **changes)


def put(cluster: FakeCluster, args: list[str], env: list[Object]) -> Object:
    manifest = target(strategy=STRATEGY, template__metadata__annotations={"team": "chat"})
    containers = manifest["spec"]["template"]["spec"]["containers"]
    containers[0] |= {"args": args, "env": env}
    containers.append(copy.deepcopy(SIDECAR))
    cluster.put(manifest)
    return live(cluster)


def live(cluster: FakeCluster) -> Object:
    found = cluster.find(DEPLOYMENT, NAMESPACE, "web")
    assert found is not None
    return found


def hand_over(cluster: FakeCluster, *fields: str) -> None:
    """What slotune's message tells people to do, for these fields and everything below them."""
    owners = cluster.owners["Deployment", NAMESPACE, "web"]
    server = ("containers", ("name", "llama"))
    given_up = {
        path
        for path in owners["kubectl"]
        if (path[-1] == "replicas" and "replicas" in fields) or (path[3:5] == server and path[5] in fields)
    }
    owners["kubectl"] -= given_up
    owners[ROLLOUT_MANAGER] = owners.get(ROLLOUT_MANAGER, set()) | given_up
    cluster.change(DEPLOYMENT, NAMESPACE, "web", metadata={"labels": {"handed": "over"}})


async def roll_out(cluster: FakeCluster, candidate: Candidate, replicas: int | None = None) -> None:
    found = live(cluster)
    written, pod = read(found)
    container = pod.container("llama")
    assert container is not None
    change = compose_change(pod, container, written, candidate, only_pod=True)
    name = candidate_hash(candidate)
    await cluster.apply(tuned_deployment(found, change, name, replicas), ROLLOUT_MANAGER, force=False)


def candidate_hash(candidate: Candidate) -> str:
    return f"{abs(hash(candidate)) % 16**10:010x}"


def others_part(found: Object) -> Object:
    """All that no rollout has to do with."""
    rest = copy.deepcopy(found["spec"])
    server = rest["template"]["spec"]["containers"][0]
    server.pop("args")
    server["env"] = [one for one in server.get("env", ()) if not one["name"].startswith("LLAMA_")]
    rest["template"]["metadata"]["annotations"].pop("slotune.dev/candidate", None)
    rest.pop("replicas")
    return dict(rest)


values = {
    "parallel_slots": st.sampled_from([1, 2, 4]),
    "ubatch_size": st.sampled_from([256, 512]),
    "context_per_slot": st.sampled_from([512, 1024]),
    "kv_unified": st.booleans(),
}
answers = st.fixed_dictionaries({}, optional=values)


@settings(deadline=None, max_examples=40)
@given(
    st.booleans(), st.booleans(), st.booleans(), st.lists(st.tuples(answers, st.none() | st.integers(1, 4)), max_size=3)
)
def test_after_any_answers_one_after_the_other_the_server_runs_the_last_one(in_env, with_secret, scales, following):
    async def law() -> None:
        cluster = FakeCluster()
        args = [*ARGS[:2], *ARGS[4:]] if in_env else ARGS
        env = [SECRET] if with_secret else []
        env += (
            [{"name": "LLAMA_ARG_N_PARALLEL", "value": "1"}, {"name": "LLAMA_ARG_UBATCH", "value": "512"}]
            if in_env
            else []
        )
        before = put(cluster, args, env)
        hand_over(cluster, "args", "env", *(["replicas"] if scales else []))
        seen = [live(cluster)]
        for changes, replicas in following:
            wanted = candidate_of(live(cluster), **changes)
            await roll_out(cluster, wanted, replicas if scales else None)
            found = live(cluster)
            assert read(found)[0].candidate == wanted
            assert others_part(found) == others_part(before)
            assert found["spec"]["replicas"] == (replicas if scales and replicas else seen[-1]["spec"]["replicas"])
            seen.append(found)
        for back in reversed(seen):
            template = back["spec"]["template"]
            await cluster.apply(untuned_deployment(live(cluster), template, None), ROLLOUT_MANAGER, force=False)
            assert template_digest(live(cluster)["spec"]["template"]) == template_digest(template)
            assert others_part(live(cluster)) == others_part(before)

    drive(law())
