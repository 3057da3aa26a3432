"""A prefix that is computed again, and one that nobody shares: what tells them apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotune.diagnose.finding import Confidence, Severity
from slotune.diagnose.rules.reuse import ENTRIES, RULES
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import Line, LogStory, Seen, Topic
from slotune.llama.log_stream import LogReader
from slotune.llama.model_facts import LayerCache, ModelFacts
from slotune.llama.server_answers import Props
from slotune.llama.template_facts import template_facts
from tests.diagnose.rules.building import (
    NOTHING,
    found,
    is_clear,
    is_undecided,
    log,
    metrics,
    of,
    pod,
    probe,
    server,
    timings,
)

SIMILAR = Topic.SLOT_BY_SIMILARITY
OLDEST = Topic.SLOT_BY_LRU
SHORT = timings(40, prompt_tokens=40 * 20)
SHARED = timings(40, cached_tokens=24_000)
"""Three quarters from the cache."""


def test_every_cause_has_a_number_of_its_own() -> None:
    assert len({one.id for one in ENTRIES}) == len({one.code for one in ENTRIES}) == 14
    assert {rule.id for rule in RULES} <= {one.id for one in ENTRIES}


def test_a_prompt_that_is_computed_again_when_it_is_sent_twice_is_found() -> None:
    said = found(RULES, "SLT040", of(probe=probe(cached_tokens_again=0)), Severity.INFO)
    assert "of a prompt of 400 tokens that was sent twice, 0 came from the cache" in said.sentence
    assert said.cost.ttft_s == pytest.approx(2.0)
    assert said.cost.ttft_share == 1.0
    alike = log({SIMILAR: 12}, timings(40, cached_tokens=None))
    found(RULES, "SLT040", of(probe=probe(cached_tokens_again=0), log=alike))


def test_a_slot_picked_for_its_prefix_that_serves_nothing_is_found() -> None:
    again = log({SIMILAR: 30, OLDEST: 10}, timings(40, cached_tokens=40))
    said = found(RULES, "SLT040", of(log=again))
    assert "30 requests got the slot that holds their beginning, yet 0 % of prompt tokens came" in said.sentence
    quiet = log({SIMILAR: 30, OLDEST: 10}, timings(40, cached_tokens=40), verbosity=3)
    assert found(RULES, "SLT040", of(log=quiet)).confidence is Confidence.POSSIBLE, "-lv 3 hides other causes"


def test_prompts_that_share_nothing_are_worth_a_word_and_no_alarm() -> None:
    said = found(RULES, "SLT040", of(log=log({OLDEST: 40}, timings(40))), Severity.INFO)
    assert said.confidence is Confidence.POSSIBLE
    counted = server(metrics=metrics(prompt_tokens_total=50_000, prompt_tokens_cached_total=12))
    found(RULES, "SLT040", of(server=counted), Severity.INFO)


@pytest.mark.parametrize(
    "symptoms",
    [
        of(log=log({SIMILAR: 30}, SHARED)),
        of(probe=probe()),
        of(server=server(metrics=metrics(prompt_tokens_total=1000, prompt_tokens_cached_total=3000))),
        of(pod=pod("--no-cache-prompt"), probe=probe(cached_tokens_again=0)),
        of(log=log({Topic.FULL_REPROCESSING: 4}, timings()), probe=probe(cached_tokens_again=0)),
    ],
    ids=["much is cached", "sent twice, cached", "counted", "it is off", "a window explains it"],
)
def test_prompts_that_are_reused_or_read_again_for_another_reason_are_clear(symptoms: Symptoms) -> None:
    assert is_clear(RULES, "SLT040", symptoms)


@pytest.mark.parametrize(
    "symptoms",
    [
        NOTHING,
        of(log=log(requests=timings(3))),
        of(log=log({OLDEST: 40}, timings(40, prompt_tokens=800))),
        of(log=log(requests=timings(40, cached_tokens=None))),
        of(probe=probe(cached_tokens_again=0, was_idle=False)),
        of(log=log(requests=timings(40, cached_tokens=2000))),
    ],
    ids=["nothing is known", "few requests", "short prompts", "not counted", "others came between", "some is cached"],
)
def test_reuse_is_undecided_where_nothing_shows_that_there_was_something_to_reuse(symptoms: Symptoms) -> None:
    assert is_undecided(RULES, "SLT040", symptoms)


def test_a_cache_that_is_off_beside_shared_prompts_is_found() -> None:
    off = pod("--no-cache-prompt")
    found(RULES, "SLT047", of(pod=off, log=log({SIMILAR: 30}, timings())))
    found(RULES, "SLT047", of(pod=off), Severity.INFO)
    found(RULES, "SLT047", of(server=server(sampling={"cache_prompt": False})), Severity.INFO)
    found(RULES, "SLT047", of(pod=pod(env={"LLAMA_ARG_NO_CACHE_PROMPT": "1"})), Severity.INFO)


def test_a_cache_that_is_on_is_clear_and_without_arguments_only_a_probe_can_tell() -> None:
    assert is_clear(RULES, "SLT047", of(pod=pod()))
    assert is_clear(RULES, "SLT047", of(log=log(requests=SHARED)))
    assert is_clear(RULES, "SLT047", of(probe=probe()))
    assert is_undecided(RULES, "SLT047", NOTHING)
    assert is_undecided(RULES, "SLT047", of(log=log(requests=timings())))


def model(*layers: LayerCache) -> ModelFacts:
    return ModelFacts("m.gguf", 10**9, "id", "any", "F16", 8192, 32_000, 4096, 32, layers, 10**9, 10**9, 16.0)


def test_prompts_read_from_the_start_because_of_a_window_are_found() -> None:
    said = found(RULES, "SLT041", of(log=log({Topic.FULL_REPROCESSING: 20, SIMILAR: 30}, timings(40))))
    assert said.sentence.startswith("20 of 40 prompts were read from the start")
    assert said.cost.ttft_share == pytest.approx(0.5)
    found(RULES, "SLT041", of(log=log({Topic.FULL_REPROCESSING: 1, SIMILAR: 30}, timings(40))), Severity.INFO)


def test_prompts_that_share_no_more_than_a_templates_first_words_lose_nothing_to_a_window() -> None:
    unrelated = of(log=log({Topic.FULL_REPROCESSING: 38, OLDEST: 40}, timings(40)))
    assert found(RULES, "SLT041", unrelated, Severity.INFO).cost.ttft_share is None


def test_a_window_is_ruled_out_by_the_model_or_by_a_log_that_would_say_so() -> None:
    assert is_clear(RULES, "SLT041", of(log=log(requests=timings())))
    assert is_clear(RULES, "SLT041", of(model=model(LayerCache(1024, 1024))))
    assert is_undecided(RULES, "SLT041", of(model=model(LayerCache(1024, 1024, window=512))))
    assert is_undecided(RULES, "SLT041", of(log=log(requests=timings(), verbosity=3)))
    assert is_undecided(RULES, "SLT041", NOTHING)


def test_reuse_of_chunks_that_the_server_switched_off_is_told() -> None:
    found(RULES, "SLT045", of(log=log({Topic.CACHE_REUSE_UNSUPPORTED: 1})), Severity.INFO)
    assert is_clear(RULES, "SLT045", of(log=log()))
    assert is_clear(RULES, "SLT045", of(pod=pod()))
    assert is_undecided(RULES, "SLT045", of(log=log(starts=0)))
    assert is_undecided(RULES, "SLT045", of(pod=pod("--cache-reuse", "256")))


def with_template(text: str | None) -> Symptoms:
    facts = None if text is None else template_facts(text)
    return of(server=server(props=Props(4, 4096, "m", "m", "b1", True, True, template=facts)))


def test_a_template_that_writes_the_minute_changes_every_prefix() -> None:
    said = found(RULES, "SLT048", with_template("Now: {{ strftime_now('%H:%M') }} {{ messages }}"))
    assert "after 60 s" in said.sentence
    assert said.confidence is Confidence.LIKELY


@pytest.mark.parametrize("text", ["{{ messages }}", "Today: {{ strftime_now('%d %b %Y') }} {{ messages }}"])
def test_a_template_without_a_clock_or_with_a_date_is_clear(text: str) -> None:
    assert is_clear(RULES, "SLT048", with_template(text))


def test_a_template_is_undecided_where_it_does_not_show_or_its_clock_does_not() -> None:
    assert is_undecided(RULES, "SLT048", with_template(None))
    assert is_undecided(RULES, "SLT048", with_template("{{ strftime_now(form) }}"))
    assert is_undecided(RULES, "SLT048", NOTHING)


def test_conversations_that_take_turns_in_the_slots_are_worth_a_word() -> None:
    turns = log({SIMILAR: 10, OLDEST: 30}, timings(40), facts={"cache_ram_mib": 0})
    said = found(RULES, "SLT042", of(log=turns), Severity.INFO)
    assert "30 of 40 requests found no slot" in said.sentence
    assert said.confidence is Confidence.POSSIBLE


def test_slots_that_remember_or_a_host_cache_behind_them_are_clear() -> None:
    assert is_clear(RULES, "SLT042", of(log=log({SIMILAR: 39, OLDEST: 1}, timings(40))))
    assert is_clear(RULES, "SLT042", of(log=log({SIMILAR: 10, OLDEST: 30}, SHARED, facts={"cache_ram_mib": 0})))
    assert is_clear(RULES, "SLT042", of(log=log({SIMILAR: 10, OLDEST: 30}, timings(40), facts={"cache_ram_mib": 8192})))


def test_turns_are_undecided_without_picks_or_where_nothing_was_ever_shared() -> None:
    assert is_undecided(RULES, "SLT042", NOTHING)
    assert is_undecided(RULES, "SLT042", of(log=log({SIMILAR: 10, OLDEST: 30}, timings(40))))
    few = of(log=log({OLDEST: 9}, timings(9), facts={"cache_ram_mib": 0}))
    assert is_undecided(RULES, "SLT042", few)
    assert is_clear(RULES, "SLT042", of(log=log({OLDEST: 40}, SHORT, facts={"cache_ram_mib": 0})))


def test_where_no_prompt_finds_its_beginning_and_no_host_cache_keeps_it_both_causes_are_named() -> None:
    symptoms = of(log=log({OLDEST: 40}, timings(40), facts={"cache_ram_mib": 0, "slots": 1}))
    said = found(RULES, "SLT042", symptoms, Severity.INFO)
    assert "more conversations take turns than 1 slot remembers" in said.sentence
    assert said.confidence is Confidence.POSSIBLE
    assert "something near their beginning changes each time" in said.sentence
    assert "--cache-ram 8192" in (said.first or "")
    assert is_clear(RULES, "SLT040", symptoms)
    kept = of(log=log({OLDEST: 40}, timings(40), facts={"cache_ram_mib": 8192, "slots": 1}))
    assert "SLT042" not in found(RULES, "SLT040", kept, Severity.INFO).sentence


def threshold(text: str) -> Seen:
    line = f"selected slot by LCP similarity, sim_best = 0.96 (> {text} thold), f_keep = 1.0"
    return Seen(4, Line(1, line), Line(2, line))


def test_a_high_similarity_that_most_prompts_miss_is_worth_a_word() -> None:
    high = of(log=log({SIMILAR: threshold("0.950"), OLDEST: 36}, timings(40)))
    said = found(RULES, "SLT043", high, Severity.INFO)
    assert "only above 95 %" in said.sentence
    assert said.confidence is Confidence.POSSIBLE
    never = of(pod=pod("-sps", "0"), log=log({OLDEST: 40}, timings(40)))
    assert "(0: never)" in found(RULES, "SLT043", never, Severity.INFO).sentence


def test_the_similarity_of_the_default_or_one_that_prompts_reach_is_clear() -> None:
    assert is_clear(RULES, "SLT043", of(log=log({SIMILAR: threshold("0.100"), OLDEST: 36}, timings(40))))
    assert is_clear(RULES, "SLT043", of(pod=pod("-sps", "0.9"), log=log({SIMILAR: 36, OLDEST: 4}, timings(40))))
    assert is_clear(RULES, "SLT043", of(pod=pod()))


def test_similarity_is_undecided_without_it_or_the_picks() -> None:
    assert is_undecided(RULES, "SLT043", NOTHING)
    assert is_undecided(RULES, "SLT043", of(pod=pod("-sps", "0.9")))
    assert is_undecided(RULES, "SLT043", of(pod=pod("-sps", "much")))


def test_requests_that_name_their_slot_are_told_by_the_picks_that_are_missing() -> None:
    named = of(log=log({OLDEST: 5}, timings(40)))
    said = found(RULES, "SLT044", named, Severity.INFO)
    assert "for 35 of 40 requests" in said.sentence
    assert said.confidence is Confidence.LIKELY
    assert is_clear(RULES, "SLT044", of(log=log({OLDEST: 5, SIMILAR: 34}, timings(40))))
    assert is_undecided(RULES, "SLT044", of(log=log(requests=timings(40)))), "this build may print no picks"
    assert is_undecided(RULES, "SLT044", NOTHING)


EVICTED = Topic.CACHE_EVICTED


def test_a_host_cache_that_throws_out_what_comes_back_is_found() -> None:
    churn = log({EVICTED: 36, OLDEST: 40}, timings(40))
    said = found(RULES, "SLT046", of(log=churn))
    assert "threw 36 prompts out in 40 requests" in said.sentence
    assert said.confidence is Confidence.LIKELY
    roomy = found(RULES, "SLT046", of(log=log({EVICTED: 900}, timings(1000))), Severity.INFO)
    assert roomy.confidence is Confidence.POSSIBLE
    larger = log({Topic.STATE_EXCEEDS_CACHE: 20}, timings(40))
    assert "20 prompts were larger" in found(RULES, "SLT046", of(log=larger)).sentence


@pytest.mark.parametrize(
    "story",
    [
        log({EVICTED: 900}, timings(1000)),
        log({EVICTED: 36}, timings(40), starts=0),
        log({EVICTED: 36}, SHARED),
        log({Topic.STATE_EXCEEDS_CACHE: 1}, timings(40)),
    ],
    ids=["a full one with room for a hundred", "its start is not seen", "and serves well", "one prompt was huge"],
)
def test_a_host_cache_that_is_full_after_a_time_is_no_alarm(story: object) -> None:
    found(RULES, "SLT046", of(log=story), Severity.INFO)


def test_a_host_cache_that_throws_nothing_out_is_clear() -> None:
    assert is_clear(RULES, "SLT046", of(log=log(requests=timings())))
    assert is_undecided(RULES, "SLT046", of(log=log(requests=timings(), verbosity=2)))
    assert is_undecided(RULES, "SLT046", NOTHING)


def updates(ms: float) -> dict[Topic, int | Seen]:
    line = "srv update: prompt cache update took 250.00 ms"
    return {Topic.CACHE_UPDATE: Seen(40, Line(5, line), Line(900, line), ms), Topic.IDLE_SLOT_SAVED: 40}


def test_saving_prompts_that_takes_a_part_of_every_wait_is_found() -> None:
    said = found(RULES, "SLT056", of(log=log(updates(10_000.0), timings(40))))
    assert said.sentence.startswith("saving and loading prompts takes 250 ms a request, 20 %")
    assert said.cost.ttft_s == pytest.approx(0.25)
    found(RULES, "SLT056", of(log=log(updates(10_000.0), SHARED)), Severity.INFO)


def test_saving_beside_a_cache_that_serves_may_be_worth_its_time() -> None:
    slow = replace(SHARED, prompt_ms=40 * 1000.0)
    said = found(RULES, "SLT056", of(log=log(updates(40 * 300.0), slow)), Severity.INFO)
    assert said.confidence is Confidence.POSSIBLE


def test_saving_that_nobody_feels_is_worth_knowing_and_no_alarm() -> None:
    petty = replace(timings(40), prompt_ms=40 * 171.0)
    said = found(RULES, "SLT056", of(log=log(updates(40 * 19.0), petty)), Severity.INFO)
    assert said.sentence.startswith("saving and loading prompts takes 19 ms a request, 10 %")


SWAPPED = """build_info: b{build}-1a2b3c4
srv    load_model: loading model 'm.gguf'
main: model loaded
slot launch_slot_: id  0 | task 0 | processing task
srv  get_availabl: updating prompt cache
{idle}srv  get_availabl: prompt cache update took 1973.04 ms
slot print_timing: id  0 | task 0 |
prompt eval time =     409.60 ms /  2048 tokens (    0.20 ms per token,  5000.00 tokens per second)
       eval time =    1000.00 ms /   101 tokens (    9.90 ms per token,   101.00 tokens per second)
slot      release: id  0 | task 0 | stop processing: n_tokens = 2148, truncated = 0
"""
IDLE = "srv  get_availabl: saving idle slot to prompt cache\n"


def read(build: int, idle: str) -> LogStory:
    """As a log with this text is read."""
    reader = LogReader("server.log")
    reader.feed(SWAPPED.format(build=build, idle=idle).encode())
    (story,) = reader.finish()
    return story


@pytest.mark.parametrize("build", [7539, 8841, 11434])
def test_copies_for_slots_that_are_taken_are_not_put_down_to_idle_slots(build: int) -> None:
    story = read(build, "")
    assert is_clear(RULES, "SLT056", of(log=story))
    got = found(RULES, "SLT058", of(log=story))
    assert "took 1973.04 ms" in got.evidence[0].text
    assert "idle" not in (got.first or got.entry.first)


@pytest.mark.parametrize(
    ("build", "flag"), [(8700, "--no-clear-idle"), (8841, "--no-clear-idle"), (11434, "--no-cache-idle-slots")]
)
def test_copies_of_idle_slots_are_switched_off_as_the_build_spells_it(build: int, flag: str) -> None:
    story = read(build, IDLE)
    assert is_clear(RULES, "SLT058", of(log=story))
    assert flag in (found(RULES, "SLT056", of(log=story)).first or "")


HANDED = """{start}.000.000 I slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = 347604932
{start}.{took}.000 I slot launch_slot_: id  0 | task {task} | processing task, is_child = 0
{start}.{took}.100 I slot print_timing: id  0 | task {task} | prompt eval time =     500.00 ms /  1000 tokens
{start}.{took}.200 I slot print_timing: id  0 | task {task} |        eval time =     400.00 ms /    21 tokens
{start}.{took}.300 I slot      release: id  0 | task {task} | stop processing: n_tokens = {length}, truncated = 0
"""
"""As builds of summer 2026 print it at ``-lv 3``: of what copying takes they say nothing."""


def handed(took_ms: int, length: int) -> LogStory:
    """Twenty requests of 1,000 computed tokens, each at work so long after its slot was picked."""
    start = "0.00.000.100 I srv    load_model: loading model 'm.gguf'\n0.00.900.000 I srv  llama_server: model loaded\n"
    lines = (HANDED.format(start=f"1.{at:02}", took=f"{took_ms:03}", task=at, length=length) for at in range(20))
    reader = LogReader("server.log")
    reader.feed((start + "".join(lines)).encode())
    (story,) = reader.finish()
    return story


def test_copies_are_found_by_the_times_of_a_log_that_does_not_say_what_they_took() -> None:
    # 1,020 tokens in the slot are 1,000 computed and 20 of the answer: none was cached.
    said = found(RULES, "SLT058", of(log=handed(500, 1020)))
    assert said.sentence.startswith("saving and loading prompts takes 500 ms a request, 50 %")
    assert said.confidence is Confidence.LIKELY
    assert is_clear(RULES, "SLT058", of(log=handed(20, 1020)))
    assert is_clear(RULES, "SLT056", of(log=handed(500, 1020)))


def test_copies_that_take_longer_than_reading_again_are_worth_less_than_nothing() -> None:
    # 1,500 more tokens of each prompt came from a cache; at 2,000 tokens/s they are 0.75 s.
    said = found(RULES, "SLT058", of(log=handed(900, 2520)))
    assert "60 % of prompt tokens came from a cache, which would be read again in less time" in said.sentence
    assert "--cache-ram 0" in (said.first or "")
    found(RULES, "SLT058", of(log=handed(600, 2520)), Severity.INFO)


def test_saving_that_is_quick_or_not_done_is_clear() -> None:
    assert is_clear(RULES, "SLT056", of(log=log(updates(200.0), timings(40))))
    assert is_clear(RULES, "SLT056", of(log=log(requests=timings())))
    assert is_clear(RULES, "SLT056", of(log=log(facts={"cache_ram_mib": 0}, verbosity=3)))
    assert is_clear(RULES, "SLT056", of(pod=pod("--cache-ram", "0")))


def test_saving_is_undecided_in_a_log_that_would_not_say() -> None:
    assert is_undecided(RULES, "SLT056", of(log=log(requests=timings(), verbosity=3)))
    assert is_undecided(RULES, "SLT056", NOTHING)


def story_of(retries: int, others: int, cached: int) -> Symptoms:
    """Prompts of 200 tokens: retries find their slot, which gives back so many tokens of each."""
    lines = []
    for task in range(others + retries):
        again, slot, old = task >= others, task % 4, cached if task >= others else 0
        how = "LCP similarity, sim_best = 0.997 (> 0.100 thold), f_keep = 0.99" if again else "LRU, t_last = 5"
        lines += [
            f"srv  get_availabl: id  {slot} | task -1 | selected slot by {how}",
            f"slot launch_slot_: id  {slot} | task {task} | processing task, is_child = 0",
            (
                f"slot print_timing: id  {slot} | task {task} | prompt eval time = 100.00 ms / {200 - old} tokens "
                "(    1.00 ms per token,   100.00 tokens per second)"
            ),
            (
                f"slot print_timing: id  {slot} | task {task} |        eval time =      50.00 ms /    11 tokens "
                "(    5.00 ms per token,   200.00 tokens per second)"
            ),
            f"slot      release: id  {slot} | task {task} | stop processing: n_tokens = 210, truncated = 0",
        ]
    reader = LogReader("server.log")
    reader.feed("".join(f"{line}\n" for line in lines).encode())
    (story,) = reader.finish()
    return Symptoms("s", log=story)


def test_a_few_retries_that_the_cache_served_beside_unique_prompts_are_no_alarm() -> None:
    served = story_of(retries=3, others=40, cached=199)
    assert served.log is not None
    assert served.log.count(SIMILAR) == 3
    found(RULES, "SLT040", served, Severity.INFO)


def test_picked_slots_that_give_nothing_back_are_found_in_a_whole_log() -> None:
    found(RULES, "SLT040", story_of(retries=20, others=20, cached=0))


def test_requests_of_which_none_had_its_slot_picked_name_it_themselves() -> None:
    stated = Symptoms("s", log=replace(log({}, timings(12)), build=11549))
    assert "12 of 12" in found(RULES, "SLT044", stated, Severity.INFO).sentence
