"""What the planner of a rollout is told of the cluster, and that nothing else comes of an obstacle."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bench.mock_server import STALL, Received, Script, document, http_head
from slotune.api.v1alpha1 import GPUClass, LlamaDeployment
from slotune.controller import pod_http, rollout_readings, verification_look
from slotune.controller.cluster import RefusedError, UnavailableError
from slotune.controller.listening import Listening
from slotune.controller.rollout_readings import RolloutReader, prometheus_reader
from slotune.controller.store import Store
from slotune.load.demand import Demand, Prompt, SyntheticPrompts
from slotune.production.looks import Reader
from slotune.production.prometheus import PrometheusReader
from slotune.production.readings import NotANumber, Reading, Unreachable, Value
from slotune.rollout.facts import Capacity, Look, Slots
from slotune.verdict.promise import Promise
from tests.controller.fake_cluster import FakeCluster
from tests.controller.llama_pods import SECRET_TEXT, LlamaPod, generation, pod_object, serving
from tests.controller.test_free_gpus import gpu_class, node, pod
from tests.production.answering import answering
from tests.production.answering import document as prometheus_document
from tests.rollout.objects import deployment, owner, template

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
SEEN_AT = NOW + timedelta(seconds=9)
SERVING = deployment(selector={"matchLabels": {"app": "chat"}})
PROMISE = Promise(2.0)
TEXTS = Demand(peak_rate=1.0, output_tokens=4, prompts=(Prompt(text=SECRET_TEXT),))
TOKENS = Demand(peak_rate=1.0, output_tokens=4, synthetic=SyntheticPrompts(input_tokens_mean=20))
FAR = 10_000
"""A port at which nothing listens on the addresses of pods."""


def cluster_of(*objects: dict[str, Any]) -> FakeCluster:
    """A cluster with these objects as they are."""
    cluster = FakeCluster()
    for one in objects:
        kind = one.get("kind", "Pod")
        metadata = one["metadata"]
        cluster.objects[kind, metadata.get("namespace", ""), metadata["name"]] = {
            "apiVersion": "v1",
            "kind": kind,
        } | one
    return cluster


def reader_of(cluster: FakeCluster, nodes: Sequence[dict[str, Any]] = ()) -> RolloutReader:
    store = Store()
    for one in nodes:
        store.put({"apiVersion": "v1", "kind": "Node"} | one)
    return RolloutReader(cluster, store, lambda: SEEN_AT)


def listening(at: int | Listening) -> Listening:
    """A port says enough of a server that is as it is by itself."""
    return at if isinstance(at, Listening) else Listening(at)


async def slots(cluster: FakeCluster, at: int | Listening, deployment: dict[str, Any] = SERVING) -> Slots:
    return await reader_of(cluster).slots(deployment, listening(at), NOW)


async def look(
    cluster: FakeCluster,
    at: int | Listening,
    *,
    serving: dict[str, Any] = SERVING,
    demand: Demand = TEXTS,
    promise: Promise = PROMISE,
    number: int = 0,
    prometheus: Reader | None = None,
    **verify: Any,
) -> Look:
    """One look at a Deployment whose window has as many looks as minutes, ten by default."""
    observe = {} if prometheus is None else {"observe": {"prometheus": {"url": "http://127.0.0.1:9090"}}}
    watched = owner(rollout={"verify": verify}, **observe)
    return await reader_of(cluster).look(
        watched, serving, listening(at), demand, promise, number=number, prometheus=prometheus, now=NOW
    )


class Says:
    """A Prometheus that says the same to every query, and remembers them."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.queries: list[str] = []

    async def scalar(self, query: str, at: datetime) -> Reading:
        self.queries.append(query)
        return self.reading


# ---------------------------------------------------------------------------------------------------- capacity


async def capacity(
    cluster: FakeCluster, nodes: Sequence[dict[str, Any]], wanted: GPUClass | None = None, **more: Any
) -> Capacity:
    return await reader_of(cluster, nodes).capacity(wanted or gpu_class(), gpu_class(), NOW, **more)


async def test_gpus_that_no_pod_of_any_namespace_holds_are_free() -> None:
    elsewhere = pod(name="other") | {"metadata": {"name": "other", "namespace": "lab"}}
    assert await capacity(cluster_of(pod(), elsewhere), [node(gpus=4)]) == Capacity(2, released=True)


async def test_todays_pods_release_nothing_when_the_candidate_runs_on_another_class() -> None:
    wanted = gpu_class("h100", nodeSelector={"gpu": "h100"})
    nodes = [node("n1", 4), node("n2", 1, labels={"gpu": "h100"})]
    assert await capacity(cluster_of(pod()), nodes, wanted) == Capacity(1, released=False)


async def test_an_operator_that_sees_no_nodes_or_not_all_pods_knows_of_no_free_gpu() -> None:
    assert await capacity(cluster_of(), []) == Capacity(None)
    namespaced = cluster_of()
    namespaced.forbidden = {("list", "Pod")}
    assert await capacity(namespaced, [node()]) == Capacity(None)


async def test_a_class_without_a_resource_is_as_free_as_the_pods_requests_say() -> None:
    cpu = gpu_class(resource=None)
    assert await capacity(cluster_of(), [node()], cpu) == Capacity(None)
    asks = {"spec": {"containers": [{"resources": {"requests": {"cpu": "4"}}}]}}
    assert await capacity(cluster_of(), [node()], cpu, template=asks) == Capacity(2)


async def test_an_api_server_that_is_down_is_the_only_error() -> None:
    cluster = cluster_of()

    def down(_: object) -> None:
        raise UnavailableError("list pods", 503, "down")

    cluster.before = down
    for asking in (capacity(cluster, [node()]), slots(cluster, FAR), look(cluster, FAR)):
        with pytest.raises(UnavailableError):
            await asking


# ---------------------------------------------------------------------------------------------------- slots


async def test_requests_at_work_on_every_pod_are_added_up() -> None:
    async with serving([LlamaPod(busy=1), LlamaPod(busy=2)]) as port:
        seen = await slots(cluster_of(pod_object(0), pod_object(1, ready=False)), port)
    assert seen == Slots(NOW, 3)


async def test_without_pods_nothing_is_at_work() -> None:
    assert await slots(cluster_of(), FAR) == Slots(NOW, 0)


async def test_pods_of_others_and_pods_without_a_running_server_are_not_asked() -> None:
    other = pod_object(1)
    other["metadata"]["labels"]["app"] = "mail"
    ended = [
        pod_object(2, phase="Pending"),
        pod_object(3, deleting=True),
        pod_object(4, phase="Succeeded"),
        pod_object(5, running=False),
    ]
    assert await slots(cluster_of(other, *ended), FAR) == Slots(NOW, 0)


async def test_the_whole_selector_of_the_deployment_decides_which_pods_are_its_own() -> None:
    expressions = [
        {"key": "tier", "operator": "NotIn", "values": ["batch"]},
        {"key": "debug", "operator": "DoesNotExist"},
        {"key": "app", "operator": "Exists"},
        {"key": "app", "operator": "In", "values": ["chat", "talk"]},
    ]
    picky = deployment(selector={"matchExpressions": expressions})
    others = [pod_object(1, labels={"tier": "batch"}), pod_object(2, labels={"debug": ""})]
    async with serving([LlamaPod(busy=1)]) as port:
        assert (await slots(cluster_of(pod_object(0), *others), port, picky)).busy == 1


def not_found(status: str) -> Script:
    return document("{}", status=status)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (not_found("401 Unauthorized"), "wants an API key"),
        (not_found("403 Forbidden"), "wants an API key"),
        (not_found("404 Not Found"), "start it with --slots"),
        (not_found("501 Not Implemented"), "start it with --slots"),
        (not_found("503 Service Unavailable"), "still loads its model"),
        (not_found("302 Found"), "as no llama-server does (HTTP 302)"),
        (document(f"<p>{SECRET_TEXT}</p>"), "as no llama-server does (HTTP 200)"),
        (document(json.dumps([{"prompt": SECRET_TEXT}])), "as no llama-server does (HTTP 200)"),
    ],
    ids=["401", "403", "404", "501", "503", "redirect", "a page", "slots that can't be read"],
)
async def test_one_pod_that_cannot_say_how_busy_it_is_leaves_it_unknown(answer: Script, words: str) -> None:
    async with serving([LlamaPod(), LlamaPod(slots_answer=answer)]) as port:
        seen = await slots(cluster_of(pod_object(0), pod_object(1)), port)
    assert seen.busy is None
    assert seen.why.startswith("pod chat-5d4f-p1 ")
    assert words in seen.why
    assert SECRET_TEXT not in seen.why


async def test_a_pod_that_nobody_listens_in_leaves_it_unknown() -> None:
    seen = await slots(cluster_of(pod_object(0), pod_object(1)), FAR)
    assert seen.busy is None
    assert "can't be reached: does llama-server listen on 0.0.0.0:10000" in seen.why
    assert seen.why.endswith(", and 1 more pod can't be asked either")


async def test_a_pod_without_an_address_leaves_it_unknown() -> None:
    fresh = pod_object(0)
    del fresh["status"]["podIP"]
    assert (await slots(cluster_of(fresh), FAR)).why == "pod chat-5d4f-p0 has no address yet"


async def test_a_server_that_goes_on_answering_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_http, "ANSWER_S", 0.3)
    drip = [(0.0, http_head()), *((0.05 * step, b"1\r\n[\r\n") for step in range(1, 200))]
    async with serving([LlamaPod(slots_answer=[(0.0, STALL)]), LlamaPod(slots_answer=drip)]) as port:
        for number in (0, 1):
            seen = await slots(cluster_of(pod_object(number)), port)
            assert seen.why == f"pod chat-5d4f-p{number} does not answer /slots within 0.3 s"


async def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_http, "LARGEST_ANSWER", 1000)
    async with serving([LlamaPod(slots_answer=document(" " * 2000 + "[]"))]) as port:
        assert (await slots(cluster_of(pod_object(0)), port)).busy is None


async def test_without_the_right_to_list_pods_it_is_unknown_how_busy_they_are() -> None:
    cluster = cluster_of()
    cluster.forbidden = {("list", "Pod")}
    seen = await slots(cluster, FAR)
    assert (seen.busy, seen.why) == (None, "slotune's role may not list pods in this namespace: give it list on pods")


# ---------------------------------------------------------------------------------------------------- look


async def test_probes_that_keep_the_promise_let_the_look_count_as_kept() -> None:
    server = LlamaPod()
    async with serving([server]) as port:
        seen = await look(cluster_of(pod_object(0)), port)
    assert (seen.at, seen.outcome) == (SEEN_AT, "Kept")
    assert seen.message.startswith("none of 2 probes broke the promise, the slowest first token came after")
    assert len(server.prompts) == 2


async def test_synthetic_prompts_are_made_for_the_models_own_vocabulary() -> None:
    server = LlamaPod()
    async with serving([server]) as port:
        assert (await look(cluster_of(pod_object(0)), port, demand=TOKENS)).outcome == "Kept"
    tokens = [token for received in server.prompts for token in json.loads(received.body)["prompt"]]
    assert 250 <= min(tokens) <= max(tokens) < 750


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (lambda received: generation(received.asked_tokens, first_s=0.5), "2 of 2 probes broke the promise (2 late)"),
        (lambda received: generation(received.asked_tokens, gap_s=0.2), "2 of 2 probes broke the promise (2 too slow)"),
        (lambda _: not_found("500 Internal Server Error"), "2 of 2 probes broke the promise (2 failed)"),
        (lambda _: generation(1), "2 of 2 probes broke the promise (2 truncated)"),
    ],
    ids=["late", "slow", "failed", "cut short"],
)
async def test_probes_that_break_the_promise_make_it_missed(answers: Any, words: str) -> None:
    async with serving([LlamaPod(answers=answers)]) as port:
        seen = await look(cluster_of(pod_object(0)), port, promise=Promise(0.25, 20.0))
    assert seen.outcome == "Missed"
    assert seen.message.startswith(words)


async def test_one_late_probe_of_forty_is_within_the_promised_share_and_three_are_not() -> None:
    for late, want in ((1, "Kept"), (3, "Missed")):
        server = LlamaPod()
        server.answers = lambda received, late=late, server=server: generation(
            received.asked_tokens, first_s=0.7 if len(server.prompts) <= late else 0.001
        )
        async with serving([server]) as port:
            seen = await look(cluster_of(pod_object(0)), port, promise=Promise(0.3), probeRequests=40, window="1m")
        assert seen.outcome == want
        assert f"probes broke the promise ({late} late)" in seen.message


async def test_no_word_of_a_prompt_or_an_answer_gets_into_a_message() -> None:
    refusal = document(json.dumps({"error": {"message": f"too long: {SECRET_TEXT}"}}), status="400 Bad Request")
    async with serving([LlamaPod(answers=lambda _: refusal)]) as port:
        seen = await look(cluster_of(pod_object(0)), port)
    assert seen.outcome == "Missed"
    assert SECRET_TEXT not in seen.message


async def test_a_probe_that_never_ends_is_a_miss_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification_look, "DECODING_S", 0.1)
    monkeypatch.setattr(verification_look, "SLACK_S", 0.2)
    async with serving([LlamaPod(answers=lambda _: [(0.0, http_head()), (0.01, STALL)])]) as port:
        seen = await look(cluster_of(pod_object(0)), port, promise=Promise(0.1))
    assert seen.message == "2 of 2 probes broke the promise (2 unfinished)"


async def test_a_promise_with_more_patience_than_a_look_is_not_judged_by_a_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verification_look, "LONGEST_PROBE_S", 0.2)
    async with serving([LlamaPod(answers=lambda _: [(0.0, http_head()), (0.01, STALL)])]) as port:
        seen = await look(cluster_of(pod_object(0)), port, promise=Promise(60.0))
    assert seen.outcome == "Inconclusive"


async def test_no_probe_begins_once_the_look_has_taken_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification_look, "SENDING_S", 0.2)
    server = LlamaPod(answers=lambda received: generation(received.asked_tokens, first_s=0.15))
    async with serving([server]) as port:
        seen = await look(cluster_of(pod_object(0)), port, probeRequests=1000, window="1m")
    assert seen.outcome == "Kept"
    assert 1 <= len(server.prompts) <= 3


async def test_probes_go_in_turn_to_the_newest_pods_that_take_requests() -> None:
    old, unready, first, second = (LlamaPod() for _ in range(4))
    pods = [
        pod_object(0, template_hash="0ld", created="2026-03-02T11:00:00Z"),
        pod_object(1, ready=False),
        pod_object(2),
        pod_object(3),
    ]
    async with serving([old, unready, first, second]) as port:
        await look(cluster_of(*pods), port, probeRequests=4, window="1m")
    assert [len(server.prompts) for server in (old, unready, first, second)] == [0, 0, 2, 2]


async def test_looks_with_one_probe_each_reach_every_pod() -> None:
    servers = [LlamaPod(), LlamaPod()]
    async with serving(servers) as port:
        for number in range(4):
            await look(cluster_of(pod_object(0), pod_object(1)), port, number=number, probeRequests=3)
    assert [len(server.prompts) for server in servers] == [2, 2]


async def test_a_pod_of_another_candidate_is_never_probed_however_new_it_is() -> None:
    rolled_out = deployment(pods=template(candidate="bbbbbbbbbb"), selector={"matchLabels": {"app": "chat"}})
    theirs, ours = LlamaPod(), LlamaPod()
    pods = [
        pod_object(0, template_hash="0ld", candidate="aaaaaaaaaa", created="2026-03-02T13:00:00Z"),
        pod_object(1, candidate="bbbbbbbbbb"),
    ]
    async with serving([theirs, ours]) as port:
        await look(cluster_of(*pods), port, serving=rolled_out)
    assert (len(theirs.prompts), len(ours.prompts)) == (0, 2)


async def test_no_two_looks_send_the_same_prompts() -> None:
    server = LlamaPod()
    reader, watched = reader_of(cluster_of(pod_object(0))), owner()
    async with serving([server]) as port:
        for minute in range(2):
            now = NOW + timedelta(minutes=minute)
            await reader.look(watched, SERVING, Listening(port), TOKENS, PROMISE, number=0, prometheus=None, now=now)
    bodies = [received.body for received in server.prompts]
    assert len(set(bodies)) == len(bodies) == 4


async def test_a_shared_beginning_is_shown_to_the_server_before_a_probe_is_judged() -> None:
    shared = SyntheticPrompts(input_tokens_mean=40, shared_prefix_tokens=30, prefix_groups=1)
    demand = Demand(peak_rate=1.0, output_tokens=4, synthetic=shared, reusable_tokens=30.0)
    server = LlamaPod()
    # A prompt whose beginning the server has not read yet takes long.
    known: set[tuple[int, ...]] = set()

    def answers(received: Received) -> Script:
        beginning = tuple(json.loads(received.body)["prompt"][:30])
        first_s = 0.001 if beginning in known else 0.5
        known.add(beginning)
        return generation(received.asked_tokens, first_s=first_s)

    server.answers = answers
    async with serving([server]) as port:
        seen = await look(cluster_of(pod_object(0)), port, demand=demand, promise=Promise(0.3))
    assert seen.outcome == "Kept"
    assert len({received.body for received in server.prompts}) == 4


async def test_new_pods_that_users_cannot_reach_either_are_a_miss() -> None:
    seen = await look(cluster_of(pod_object(0)), FAR)
    assert seen.outcome == "Missed"
    assert seen.message.startswith("2 of 2 probes broke the promise (2 failed); pod chat-5d4f-p0 can't be reached")


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
async def test_a_server_with_a_key_shows_neither_a_kept_nor_a_missed_promise(status: str) -> None:
    for server in (LlamaPod(facts_status=status), LlamaPod(answers=lambda _: not_found(status))):
        async with serving([server]) as port:
            seen = await look(cluster_of(pod_object(0)), port)
        assert seen.outcome == "Inconclusive"
        assert seen.message.startswith("no probe could be judged")


async def test_a_server_that_does_not_say_its_vocabulary_gets_no_synthetic_probe() -> None:
    server = LlamaPod(vocabulary=None)
    async with serving([server]) as port:
        seen = await look(cluster_of(pod_object(0)), port, demand=TOKENS)
    assert (seen.outcome, server.prompts) == ("Inconclusive", [])
    assert seen.message.startswith("no probe was sent: vocabulary is None")


async def test_without_new_pods_that_take_requests_nothing_is_shown() -> None:
    seen = await look(cluster_of(pod_object(0, ready=False)), FAR)
    assert (seen.outcome, seen.message) == ("Inconclusive", "no probe was sent: no new pod takes requests")


async def test_a_look_without_the_right_to_list_pods_shows_nothing_and_says_why() -> None:
    cluster = cluster_of()
    cluster.forbidden = {("list", "Pod")}
    seen = await look(cluster, FAR)
    assert seen.outcome == "Inconclusive"
    assert "give it list on pods" in seen.message


async def test_what_the_operator_itself_measured_late_is_not_held_against_the_server() -> None:
    """A loop that is blocked while the first token comes makes it look late."""

    def answers(received: Received) -> Script:
        time.sleep(0.6)  # this process serves and measures: its loop stands still
        return generation(received.asked_tokens)

    async with serving([LlamaPod(answers=answers)]) as port:
        seen = await look(cluster_of(pod_object(0)), port, promise=Promise(0.4))
    assert seen.outcome == "Inconclusive"


async def test_fewer_probes_than_looks_still_send_one_each_time() -> None:
    server = LlamaPod()
    async with serving([server]) as port:
        for number in range(3):
            assert (await look(cluster_of(pod_object(0)), port, number=number, probeRequests=1)).outcome == "Kept"
    assert len(server.prompts) == 3


async def test_without_probes_only_prometheus_is_asked() -> None:
    server = LlamaPod()
    async with serving([server]) as port:
        alone = await look(cluster_of(pod_object(0)), port, probeRequests=0)
        beside = await look(cluster_of(pod_object(0)), port, probeRequests=0, prometheus=Says(Value(1.0)))
    assert server.prompts == []
    assert alone.outcome == beside.outcome == "Inconclusive"  # llama-server counts no time to a first token
    assert alone.message == "nobody is asked: set rollout.verify.probeRequests above 0, or observe.prometheus"


async def test_prometheus_is_asked_about_the_new_pods_alone() -> None:
    prometheus = Says(Value(30.0))
    old = pod_object(0, template_hash="0ld", created="2026-03-02T11:00:00Z")
    await look(cluster_of(old, pod_object(1)), FAR, prometheus=prometheus)
    assert prometheus.queries
    assert all("chat-5d4f-" in query for query in prometheus.queries)


@pytest.mark.parametrize(
    ("probes", "prometheus", "want"),
    [
        ("Kept", Value(1.0), "Kept"),
        ("Kept", Value(9.0), "Missed"),
        ("Kept", NotANumber(), "Kept"),
        ("Kept", Unreachable("down"), "Kept"),
        ("Missed", Value(1.0), "Missed"),
        ("Missed", NotANumber(), "Missed"),
        ("Inconclusive", Value(1.0), "Kept"),
        ("Inconclusive", Value(9.0), "Missed"),
        ("Inconclusive", NotANumber(), "Inconclusive"),
    ],
)
async def test_one_miss_is_a_miss_and_silence_speaks_for_nobody(probes: str, prometheus: Reading, want: str) -> None:
    servers = {
        "Kept": LlamaPod(),
        "Missed": LlamaPod(answers=lambda _: not_found("500 Internal Server Error")),
        "Inconclusive": LlamaPod(facts_status="401 Unauthorized"),
    }
    asked = {"prometheus": {"url": "http://127.0.0.1:9090", "ttftQuery": "ttft"}}
    async with serving([servers[probes]]) as port:
        seen = await reader_of(cluster_of(pod_object(0))).look(
            owner(observe=asked),
            SERVING,
            Listening(port),
            TEXTS,
            PROMISE,
            number=0,
            prometheus=Says(prometheus),
            now=NOW,
        )
    assert seen.outcome == want


# ---------------------------------------------------------------------------------------------------- the token

OBSERVED = {"prometheus": {"url": "http://127.0.0.1:1", "bearerTokenSecretRef": {"name": "prom", "key": "token"}}}


def secret(**data: str) -> dict[str, Any]:
    return {"kind": "Secret", "metadata": {"name": "prom", "namespace": "shop"}, "data": data}


def encoded(token: str) -> str:
    return base64.b64encode(token.encode()).decode()


async def why_closed(cluster: FakeCluster, watched: LlamaDeployment | None = None) -> str:
    reader = await prometheus_reader(watched or owner(observe=OBSERVED), cluster, "shop")
    reading = await reader.scalar("up", NOW)
    assert isinstance(reading, Unreachable)
    return reading.reason


async def test_the_token_of_the_secret_goes_to_prometheus() -> None:
    heard: list[str | None] = []

    def answer(handler: Any) -> None:
        heard.append(handler.headers["Authorization"])
        prometheus_document({"status": "success", "data": {"resultType": "scalar", "result": [1, "4"]}})(handler)

    with answering(answer) as url:
        watched = owner(observe={"prometheus": {**OBSERVED["prometheus"], "url": url}})
        reader = await prometheus_reader(watched, cluster_of(secret(token=encoded("s3cret\n"))), "shop")
        assert await reader.scalar("up", NOW) == Value(4.0)
        watched = owner(observe={"prometheus": {"url": url}})
        await (await prometheus_reader(watched, cluster_of(), "shop")).scalar("up", NOW)
    assert heard == ["Bearer s3cret", None]


async def test_a_secret_that_gives_no_token_closes_prometheus_with_a_cure() -> None:
    assert "no such Secret in namespace shop: create it" in await why_closed(cluster_of())
    assert "has no key token" in await why_closed(cluster_of(secret(other=encoded("x"))))
    assert "store the bare token" in await why_closed(cluster_of(secret(token="%%%")))
    assert "store the bare token" in await why_closed(cluster_of(secret(token=encoded(" \n"))))
    assert "store the bare token" in await why_closed(cluster_of(secret(token=encoded("two\nlines"))))
    forbidden = cluster_of(secret(token=encoded("x")))
    forbidden.forbidden = {("get", "Secret")}
    assert "permissions.secrets" in await why_closed(forbidden)


async def test_an_odd_refusal_of_the_secret_is_no_error() -> None:
    cluster = cluster_of()

    def refuse(_: object) -> None:
        raise RefusedError("get secret", 400, "odd")

    cluster.before = refuse
    assert "HTTP 400" in await why_closed(cluster)


async def test_no_query_may_hold_up_a_look_for_long() -> None:
    patient = {"prometheus": {"url": "http://127.0.0.1:1", "timeout": "1h"}}
    reader = await prometheus_reader(owner(observe=patient), cluster_of(), "shop")
    assert isinstance(reader, PrometheusReader)
    assert reader.timeout_s == rollout_readings.LONGEST_QUERY_S
