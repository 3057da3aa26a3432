"""More work than the server can do, and work that is done in vain."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Cost, Finding, Severity, Undecided
from slotune.diagnose.rules import work
from slotune.diagnose.rules.waiting import BRIEF, Waiting, room_for_more, waiting
from slotune.diagnose.symptoms import Symptoms

__all__ = ["ENTRIES", "RULES"]

SATURATED: Final = Entry(
    id="SLT100",
    code="Saturated",
    item=Item.LOAD,
    title="Requests wait, and users' speed leaves no room for more slots",
    cause="All slots are busy and each request already gets about as few tokens/s as is owed, or fewer: a request "
    "takes too much work for this rate (ggml-org/llama.cpp#10860).",
    first="Save work first: a prompt cache that hits, then fewer bytes (smaller weights, q8_0 KV cache); then one "
    "replica more.",
    avoid="Do not add slots: they share the same bandwidth, and everybody gets slower.",
    verify="requests_deferred stays at 0 under the same load.",
    knobs=("cacheRAMMiB", "variant", "cacheTypeK", "cacheTypeV", "replicas"),
    binds="TTFTQueue",
)

ONE_USER_TOO_SLOW: Final = Entry(
    id="SLT101",
    code="OneUserTooSlow",
    item=Item.LOAD,
    title="One user alone gets fewer tokens/s than are owed",
    cause="A token of one sequence takes longer than is owed with nothing else running, so no rate is low enough and "
    "no number of replicas helps.",
    first="Try smaller weights, a GPU with more memory bandwidth, or speculative decoding.",
    avoid="Do not search slots or replicas: they share speed, and none of them makes one user faster.",
    verify="Tokens/s of one request on the idle server is above what is owed.",
    knobs=("variant", "gpuClass"),
    binds="TokensPerSecond",
)

BYTES_PER_STEP: Final = Entry(
    id="SLT102",
    code="BytesPerStep",
    item=Item.LOAD,
    title="Together, users get fewer tokens/s than are owed",
    cause="Each step reads the weights and every running request's KV cache, and with this many requests that takes "
    "longer than is owed for a token.",
    first="Smaller weights first, then a q8_0 KV cache, then fewer slots.",
    avoid="Do not change --batch-size or --ubatch-size: they are about prompts.",
    verify="Tokens/s per user at the same number of requests in flight.",
    knobs=("variant", "cacheTypeK", "cacheTypeV", "parallelSlots"),
    binds="TokensPerSecond",
)

SPECULATION_DOES_NOT_PAY: Final = Entry(
    id="SLT103",
    code="SpeculationDoesNotPay",
    item=Item.LOAD,
    title="Most guessed tokens are thrown away",
    cause="Every guessed token is computed, and only accepted ones are kept; with few accepted, or many requests at "
    "once, guessing takes more time than it saves (ggml-org/llama.cpp#27342).",
    first="Start without --spec-type (and --spec-draft-model), or guess fewer tokens at a time (--spec-draft-n-max).",
    avoid="Do not judge it with one request at a time: the loss grows with the number of requests.",
    verify="Tokens/s per user under the same load with and without it.",
    knobs=("speculation",),
)

ENTRIES: Final = (SATURATED, ONE_USER_TOO_SLOW, BYTES_PER_STEP, SPECULATION_DOES_NOT_PAY)

FEW_ACCEPTED: Final = 0.2
"""Of guessed tokens: below one in five even a small draft model costs more steps than it saves."""
OFTEN: Final = 0.3
"""Guessed tokens per token of an answer; with fewer it hardly matters what becomes of them."""
ENOUGH_GUESSED: Final = 200


def _saturated(symptoms: Symptoms) -> Finding | Clear | Undecided:
    found = waiting(symptoms)
    if not isinstance(found, Waiting):
        return found
    if found.busy < found.slots:
        return Clear("requests wait though slots are idle", found.evidence)
    room = room_for_more(symptoms)
    if room is None:
        return Undecided("what is owed to users: -f FILE with the LlamaDeployment")
    if room[0]:
        return Clear(f"there is speed to spare: {room[1]}", found.evidence)
    speed = () if room[2] is None else (room[2],)
    return Finding(
        SATURATED,
        f"{found.deferred[-1]} wait for {found.slots} busy slots, and there is no speed to spare: {room[1]}",
        (*found.evidence, *speed),
        Severity.WARNING if found.rounds >= BRIEF else Severity.INFO,
        Confidence.LIKELY,
        found.cost(symptoms),
    )


def _one_user_too_slow(symptoms: Symptoms) -> Finding | Clear | Undecided:
    owed = work.owed_speed(symptoms)
    if owed is None:
        return Clear("no speed is owed to users", unasked=True)
    probe = symptoms.probe
    if probe is None or probe.decode_step_s <= 0 or not probe.was_idle:
        return Undecided("--probe while nobody else uses the server")
    alone = 1 / probe.decode_step_s
    seen = Evidence(Source.PROBE, f"one request alone: {alone:.1f} tokens/s")
    if alone >= owed:
        return Clear(f"one user alone gets {alone:.0f} tok/s, {owed:g} are owed", (seen,))
    return Finding(
        ONE_USER_TOO_SLOW,
        f"one user alone gets {alone:.1f} tok/s ({1e3 * probe.decode_step_s:.0f} ms a token), {owed:g} are owed",
        (seen,),
        cost=Cost(speed_share=1 - alone / owed),
    )


def _bytes_per_step(symptoms: Symptoms) -> Finding | Clear | Undecided:
    owed = work.owed_speed(symptoms)
    if owed is None:
        return Clear("no speed is owed to users", unasked=True)
    speed, alone = work.user_speed(symptoms), work.decode_alone(symptoms)
    if speed is None:
        return Undecided("/metrics or a log of the server under load")
    if speed.value >= owed:
        return Clear(f"users get {speed.value:.0f} tok/s, {owed:g} are owed", (speed.evidence,))
    if alone is None:
        return Undecided("--probe: what one user alone gets")
    if alone.value < owed:
        return Clear("one user alone gets less than is owed too", (alone.evidence,))
    return Finding(
        BYTES_PER_STEP,
        f"users get {speed.value:.0f} tok/s ({alone.value:.0f} alone), {owed:g} are owed",
        (speed.evidence, alone.evidence),
        confidence=Confidence.POSSIBLE,
        cost=Cost(speed_share=1 - speed.value / alone.value),
    )


def _speculation(symptoms: Symptoms) -> Finding | Clear | Undecided:
    counted = _guesses(symptoms)
    if counted is None:
        return Undecided("/metrics or a log of the server under load")
    drafted, accepted, predicted, seen = counted
    if predicted <= 0 or drafted < OFTEN * predicted:
        return Clear(f"hardly any tokens are guessed: {drafted:,.0f} for {predicted:,.0f} of answers", (seen,))
    share = accepted / drafted
    if share >= FEW_ACCEPTED or accepted >= FEW_ACCEPTED * predicted:
        helped = 100 * accepted / predicted
        words = f"{100 * share:.0f} % of guessed tokens are accepted, {helped:.0f} % of the answers' tokens"
        return Clear(words, (seen,))
    if drafted < ENOUGH_GUESSED:
        return Undecided("a longer log of the server under load")
    return Finding(
        SPECULATION_DOES_NOT_PAY,
        f"of {drafted:,.0f} guessed tokens {accepted:,.0f} were accepted ({100 * share:.0f} %): "
        f"{100 * accepted / predicted:.0f} % of the answers' tokens, with {drafted / predicted:.1f} guesses for each",
        (seen,),
        confidence=Confidence.LIKELY,
    )


def _guesses(symptoms: Symptoms) -> tuple[float, float, float, Evidence] | None:
    """(Guessed, accepted, all tokens of answers, where); None: nobody counted."""
    requests = None if symptoms.log is None else symptoms.log.requests
    if requests is not None and requests.drafted_tokens:
        drafted, accepted = requests.drafted_tokens, requests.accepted_tokens
        seen = Evidence(Source.LOG, f"{requests.requests} answers: {accepted:,} accepted / {drafted:,} generated")
        return drafted, accepted, requests.predicted_tokens, seen
    server = symptoms.server
    names = ("spec_decode_num_draft_tokens_total", "spec_decode_num_accepted_tokens_total")
    if server is not None and (guessed := work.total(server, names[0])) is not None:
        right, predicted = work.total(server, names[1]) or 0.0, work.total(server, "tokens_predicted_total") or 0.0
        if guessed or predicted:
            text = f"{names[0]} {guessed:,.0f}, {names[1]} {right:,.0f}"
            return guessed, right, predicted, Evidence(Source.METRICS, text)
    if requests is not None and requests.requests:
        return 0.0, 0.0, requests.predicted_tokens, Evidence(Source.LOG, f"{requests.requests} answers without a draft")
    return None


RULES: Final = (
    Rule(SATURATED.id, Item.LOAD, _saturated),
    Rule(ONE_USER_TOO_SLOW.id, Item.LOAD, _one_user_too_slow),
    Rule(BYTES_PER_STEP.id, Item.LOAD, _bytes_per_step),
    Rule(SPECULATION_DOES_NOT_PAY.id, Item.LOAD, _speculation),
)
