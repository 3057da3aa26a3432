"""Other programs on the same machine, told from two looks at /proc."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slotune.diagnose.finding import Confidence, Severity, Undecided
from slotune.diagnose.host import HostFacts
from slotune.diagnose.rules.threads import RULES
from slotune.diagnose.symptoms import Symptoms
from slotune.load.process_memory import memory_look
from tests.diagnose.rules.building import NOTHING, ask, found, is_clear, is_undecided, log, of, server
from tests.load.proc_texts import processors


def looks(seconds: float = 5.0, *, before: dict[str, Any] | None = None, **after: Any) -> Symptoms:
    """A server on four cores with two threads that are busy all the time; ``after`` tells what else was."""
    usual: dict[str, Any] = {"cpu_s": 50 + 2 * seconds, "busy_s": 500 + 2 * seconds, "threads": ran(2, seconds)}
    first = memory_look(processors(**{"threads": ran(12, 0.0), **(before or {})}))
    return of(host=HostFacts(first, memory_look(processors(at_s=1000 + seconds, **{**usual, **after}))))


def ran(count: int, seconds: float, waited_s: float = 0.0) -> dict[int, tuple[float, float]]:
    """Threads that ran and waited so long since the first look, and one that serves requests and sleeps."""
    return dict.fromkeys(range(1, count + 1), (3 + seconds, 1 + waited_s)) | {90: (0.25, 0.0)}


def test_programs_that_take_the_cores_it_waits_for_are_named_with_their_share() -> None:
    said = found(RULES, "SLT062", looks(cpu_s=57.5, busy_s=520, threads=ran(2, 3.75, 1.25)))
    assert "other programs took 2.5 of 4 cores" in said.sentence
    assert "its threads waited for one in 25 % of the time" in said.sentence
    assert said.cost.speed_share is not None
    assert round(said.cost.speed_share, 2) == 0.25
    assert said.confidence is Confidence.LIKELY
    assert "schedstat: 2 threads at work, 25 % of their time waiting" in [one.text for one in said.evidence]


def test_a_client_on_the_same_machine_that_takes_a_tenth_is_no_alarm() -> None:
    client = looks(cpu_s=57.5, busy_s=512, threads=ran(2, 4.4, 0.6))
    said = found(RULES, "SLT062", client, Severity.INFO)
    assert "its threads waited for one in 12 % of the time" in said.sentence


def test_a_moment_is_no_alarm() -> None:
    crowd = looks(0.5, cpu_s=50.75, busy_s=502, threads=ran(2, 0.375, 0.125))
    said = found(RULES, "SLT062", crowd, Severity.INFO)
    assert said.confidence is Confidence.POSSIBLE


def test_other_virtual_machines_are_told_from_other_programs() -> None:
    said = found(RULES, "SLT062", looks(cpu_s=57.5, busy_s=507.5, stolen_s=12.5, threads=ran(2, 3.75, 1.25)))
    assert said.sentence.startswith("other virtual machines took 2.5 of 4 cores")


def test_programs_beside_which_cores_are_left_take_nothing() -> None:
    assert is_clear(RULES, "SLT062", looks(busy_s=515)), "one core of four, and its threads never wait"
    assert is_clear(RULES, "SLT062", looks()), "nobody else is there"


def test_who_looks_is_no_other_program() -> None:
    files = processors(at_s=1001, cpu_s=52, busy_s=503, threads=ran(2, 1.0, 0.5))
    files["/proc/self/stat"] = "9 (slotune) R 1 7 7 0 -1 0 5 0 33 0 100 0 0 0 20"
    assert is_clear(RULES, "SLT062", of(host=HostFacts(memory_look(processors(threads=ran(2, 0))), memory_look(files))))


def test_more_threads_than_cores_wait_for_each_other_and_not_for_others() -> None:
    eight = looks(cpu_s=68, busy_s=520, threads=ran(8, 2.25, 2.75))
    assert is_clear(RULES, "SLT062", eight)
    said = found(RULES, "SLT060", eight)
    assert said.sentence.startswith("8 threads share 4 cores")


def test_a_limit_of_its_own_is_not_others() -> None:
    held = looks(cpu_s=55, busy_s=520, threads=ran(2, 2.5, 2.5), limit="100000 100000", throttled_s=2.5)
    assert is_clear(RULES, "SLT062", held)
    said = found(RULES, "SLT060", held)
    assert said.sentence.startswith("2 threads share 1 core")


def test_without_the_times_of_threads_idle_cores_rule_it_out_and_full_ones_do_not_prove_it() -> None:
    unseen: dict[str, Any] = {"before": {"threads": None}, "threads": None}
    assert is_clear(RULES, "SLT062", looks(busy_s=514, **unseen))
    assert is_undecided(RULES, "SLT062", looks(cpu_s=66, busy_s=519, **unseen))
    said = found(RULES, "SLT062", looks(cpu_s=57, busy_s=520, **unseen), Severity.INFO)
    assert said.confidence is Confidence.POSSIBLE


def test_a_server_that_does_not_work_waits_for_nobody() -> None:
    said = ask(RULES, "SLT062", looks(cpu_s=50, busy_s=520, threads=ran(2, 0.0)))
    assert isinstance(said, Undecided)
    assert "while it works" in said.needs
    asked = ask(RULES, "SLT062", replace(looks(cpu_s=50, busy_s=520, threads=ran(2, 0.0)), server=server()))
    assert asked == Undecided("--watch 60 while requests come in")


def test_a_server_that_others_starve_is_at_work_though_it_gets_next_to_nothing() -> None:
    said = found(RULES, "SLT062", looks(cpu_s=50.5, busy_s=520, threads=ran(1, 0.5, 4.5)))
    assert "in 90 % of the time" in said.sentence


def test_looks_that_cannot_be_of_one_machine_or_process_decide_nothing() -> None:
    assert is_undecided(RULES, "SLT062", looks(cpu_s=57.5, busy_s=1000)), "100 s a second of 4 cores"
    assert is_undecided(RULES, "SLT062", looks(cpu_s=57.5, busy_s=507.5, stolen_s=100))
    assert is_undecided(RULES, "SLT062", looks(cpu_s=150))
    full = found(RULES, "SLT062", looks(cpu_s=50.5, busy_s=521.5, threads=ran(2, 0.25, 4.75)))
    assert "other programs took 4.0 of 4 cores" in full.sentence, "hundredths add up to no more than there are"


def test_a_thread_with_the_number_of_one_that_is_gone_is_not_counted() -> None:
    threads = ran(2, 3.75, 1.25) | {3: (1.0, 9.0)}
    said = found(RULES, "SLT062", looks(cpu_s=57.5, busy_s=520, threads=threads))
    assert "its threads waited for one in 25 % of the time" in said.sentence


def test_one_look_or_none_decides_nothing() -> None:
    assert is_undecided(RULES, "SLT062", NOTHING)
    assert is_undecided(RULES, "SLT062", of(host=HostFacts(memory_look(processors()))))


def test_threads_of_a_server_on_this_machine_are_held_against_its_cores() -> None:
    assert is_clear(RULES, "SLT060", looks())
    assert is_clear(RULES, "SLT061", looks())
    said = found(RULES, "SLT061", looks(limit="50000 100000"))
    assert said.sentence.startswith("the CPU limit is 0.5 of a core")
    pinned = looks(before={"allowed": "2"}, allowed="2", cpu_s=55, threads=ran(4, 1.0, 3.0), busy_s=520)
    assert found(RULES, "SLT060", pinned).sentence.startswith("4 threads share 1 core")


def stated(arguments: str, **more: Any) -> Symptoms:
    files = processors(**more) | {"/proc/1/cmdline": arguments.replace(" ", "\0"), "/proc/1/environ": ""}
    return of(host=HostFacts(memory_look(files)))


def test_an_idle_server_is_judged_by_the_threads_that_it_was_given() -> None:
    said = found(RULES, "SLT060", stated("llama-server -m m -t 16"), Severity.INFO)
    assert said.sentence.startswith("16 threads share 4 cores")
    assert said.confidence is Confidence.POSSIBLE, "a GPU may compute"
    assert is_clear(RULES, "SLT060", stated("llama-server -m m -t 4"))
    assert is_clear(RULES, "SLT060", stated("llama-server -m m")), "without -t there are no more threads than cores"
    default = found(RULES, "SLT060", stated("llama-server -m m", cpus=16, limit="200000 100000"))
    assert default.sentence.startswith("at least 8 threads share 2 cores")
    assert is_undecided(RULES, "SLT060", of(host=HostFacts(memory_look(processors()))))


def test_an_idle_server_on_the_cpu_with_more_threads_than_cores_is_found() -> None:
    on_cpu = log(facts={"model_buffers": {"CPU": 10**9}, "threads": None, "threads_batch": None}, fact_lines={})
    found(RULES, "SLT060", replace(stated("llama-server -m m -t 16"), log=on_cpu))


def test_threads_that_were_seen_at_work_count_before_those_that_were_asked_for() -> None:
    files = {"/proc/1/cmdline": "llama-server\0-t\00016\0-m\0m"}
    first = memory_look(processors(threads=ran(1, 0)) | files)
    later = memory_look(processors(at_s=1005, cpu_s=55, busy_s=505, threads=ran(1, 5.0)) | files)
    assert is_clear(RULES, "SLT060", of(host=HostFacts(first, later))), "the GPU computes, and one thread feeds it"
