"""In what order a log says that requests were served: numbers are given as they come, slots later."""

from __future__ import annotations

from slotune.llama.log_story import Turns
from slotune.llama.log_stream import LogReader


def turns(*lines: str) -> Turns:
    """Of a log of these lines, and of one finished request."""
    reader = LogReader("server.log")
    reader.feed("\n".join([*lines, *END, ""]).encode())
    (story,) = reader.finish()
    assert story.requests is not None
    assert story.requests.turns is not None
    return story.requests.turns


def launch(task: int, slot: int = 0, *, at: float | None = None, child: int = 0) -> str:
    """A slot is given to a task, ``at`` seconds after the start."""
    stamp = "" if at is None else f"{int(at // 60)}.{int(at % 60):02d}.{int(at * 1000 % 1000):03d}.000 I "
    return f"{stamp}slot launch_slot_: id {slot:2d} | task {task} | processing task, is_child = {child}"


def release(task: int, slot: int = 0) -> str:
    return f"slot      release: id {slot:2d} | task {task} | stop processing: n_tokens = 27, truncated = 0"


def new_prompt(task: int, slot: int) -> str:
    words = "new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = 9000"
    return f"slot update_slots: id {slot:2d} | task {task} | {words}"


def piece(task: int, slot: int) -> str:
    words = "prompt processing progress, n_tokens = 2048, batch.n_tokens = 2048, progress = 0.2"
    return f"slot update_slots: id {slot:2d} | task {task} | {words}"


END = (
    "slot print_timing: id  9 | task 99999 | prompt eval time =     100.00 ms /   100 tokens",
    "slot print_timing: id  9 | task 99999 |        eval time =     100.00 ms /    11 tokens",
)


def served(*tasks: int, slot: int = 0, begin_s: float | None = None) -> list[str]:
    """One slot's requests, one after the other; a second apart."""
    lines = []
    for place, task in enumerate(tasks):
        lines += [launch(task, slot, at=None if begin_s is None else begin_s + place), release(task, slot)]
    return lines


def test_requests_in_the_order_of_their_numbers_overtake_nobody() -> None:
    said = turns(*served(0, 7, 19, 40))
    assert (said.requests, said.overtaken, said.most) == (4, 0, 0)


def test_issue_15008_a_request_that_later_ones_are_served_before_is_overtaken() -> None:
    said = turns(*served(0, 2, 7, 19, 40, 1, 60, begin_s=10.0))
    assert (said.requests, said.overtaken, said.most, said.waited_s) == (7, 1, 4, 4.0)
    assert said.before is not None
    assert "task 2 |" in said.before.text
    assert said.late is not None
    assert "task 1 |" in said.late.text


def test_what_two_threads_post_in_another_order_than_numbered_is_chance() -> None:
    assert turns(*served(0, 3, 2, 5, 4, 9)).overtaken == 0


def test_a_request_that_waits_for_the_slot_that_it_names_is_not_overtaken_in_others() -> None:
    pinned = [launch(0, 0), *served(2, 3, 4, 5, slot=1), release(0, 0), launch(1, 0), launch(9, 1)]
    assert turns(*pinned).overtaken == 0


def test_a_request_for_several_answers_waits_for_as_many_slots() -> None:
    several = [*served(0, 5, 6, 7), launch(2, 1, child=1), launch(3, 2, child=1), launch(1, 0), launch(20, 3)]
    assert turns(*several).overtaken == 0


def test_its_children_are_no_requests_that_came_before_others() -> None:
    children = [launch(1000, 0, child=1), release(1000), launch(1001, 0, child=1), release(1001), *served(3, 4, 5)]
    assert turns(*children).overtaken == 0


def test_numbers_that_begin_anew_are_a_restart_and_nobody_is_overtaken() -> None:
    assert turns(*served(0, 10, 20, 30, 0, 10, 20, 30, 40)).overtaken == 0
    assert turns(*served(*range(100, 200)), *served(*range(90))).overtaken == 0, "no number comes twice"
    assert turns(*served(5, 15, 25, begin_s=500.0), *served(2, 30, begin_s=1.0)).overtaken == 0, "its clock went back"


def test_without_times_nobody_is_overtaken_for_sure_until_numbers_go_on() -> None:
    assert turns(*served(2, 7, 19, 40, 1)).overtaken == 0
    assert turns(*served(2, 7, 19, 40, 1), *served(50)).overtaken == 1
    assert turns(*served(2, 7, 19, 40, 1, begin_s=0.0)).overtaken == 1, "the clock went on"


def test_lines_of_old_builds_tell_it_too() -> None:
    old = 'INFO [   launch_slot_with_task] slot is processing task | tid="1" timestamp={} id_slot=0 id_task={}'
    released = 'INFO [            update_slots] slot released | tid="1" timestamp={} id_slot=0 truncated=false'
    tasks = (0, 2, 7, 19, 1, 30)
    lines = [words.format(1722900020 + place, task) for place, task in enumerate(tasks) for words in (old, released)]
    assert turns(*lines).overtaken == 1


def test_issue_6607_a_later_prompt_in_a_lower_slot_is_read_before_an_earlier_one() -> None:
    lines = [launch(5, 2), launch(9, 0), new_prompt(9, 0), piece(9, 0), piece(9, 0), piece(9, 0), new_prompt(5, 2)]
    said = turns(*lines)
    assert (said.begun, said.behind, said.passed) == (2, 1, 1)
    assert said.passed_line is not None
    assert "task 5 |" in said.passed_line.text


def test_two_prompts_that_begin_in_one_step_keep_nobody_waiting() -> None:
    said = turns(launch(5, 2), launch(9, 0), new_prompt(9, 0), piece(9, 0), new_prompt(5, 2), piece(5, 2))
    assert (said.behind, said.passed) == (1, 0)


def test_an_earlier_prompt_may_be_read_first() -> None:
    said = turns(launch(5, 0), launch(9, 2), new_prompt(5, 0), piece(5, 0), piece(5, 0), piece(5, 0), new_prompt(9, 2))
    assert (said.behind, said.passed) == (0, 0)


def test_a_log_that_does_not_say_when_prompts_begin_tells_nothing_of_it() -> None:
    said = turns(launch(5, 2), launch(9, 0), piece(9, 0), piece(9, 0), piece(9, 0))
    assert (said.begun, said.passed) == (0, 0)
