"""The report opens anywhere, says what the decision says, and lets nothing through that it should not."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from decimal import Decimal
from importlib import resources

import pytest

from slotune.load.demand import Prompt
from slotune.report.html import render_html
from slotune.search.decision import Rejection
from tests.report.page import Element, read
from tests.report.samples import ALL, HOSTILE, Sample, demo_like, worked_example

WHEN = "3 February 2026, 11:42 UTC"


def page(sample: Sample) -> str:
    return render_html(
        sample.problem,
        sample.decision,
        sample.results,
        findings=sample.findings,
        generated_at=WHEN,
        version="1.2.3",
        flags=sample.flags,
        environment=sample.environment,
    )


def words(element: Element) -> str:
    return " ".join(element.text.replace("\N{NO-BREAK SPACE}", " ").split())


def section(root: Element, title: str) -> Element:
    return next(s for s in root.all("section") for h in s.all("h2") if words(h) == title)


@pytest.mark.parametrize("name", ALL)
def test_every_page_is_well_formed_and_needs_nothing_else(name: str) -> None:
    html = page(ALL[name]())
    root = read(html)
    assert html.startswith("<!doctype html>")
    assert len(root.all("h1")) == 1
    assert len(root.all("style")) == 1
    for element in [root, *root.children]:
        for forbidden in ("script", "link", "img", "iframe", "object", "embed", "form", "base"):
            assert element.all(forbidden) == []
    urls = re.findall(r"(?:url\(|@import|src=|href=)\s*[^;)>\s]*", html)
    assert all(re.fullmatch(r"url\(#hatch-[sr]\d+", found) for found in urls), urls


@pytest.mark.parametrize("name", ALL)
def test_every_picture_has_words_and_every_name_is_used_once(name: str) -> None:
    root = read(page(ALL[name]()))
    for svg in root.all("svg"):
        title = svg.children[0]
        assert title.tag == "title"
        assert words(title)
        assert svg.attributes.get("role") == "img" or svg.attributes.get("aria-hidden") == "true"
    ids = [e.attributes["id"] for kind in ("pattern", "section", "div") for e in root.all(kind) if "id" in e.attributes]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", ALL)
def test_every_table_has_headers_for_its_columns(name: str) -> None:
    for table in read(page(ALL[name]())).all("table"):
        heads = [th for thead in table.all("thead") for th in thead.all("th")]
        assert all(th.attributes["scope"] == "col" for th in heads)
        for row in (tr for body in table.all("tbody") for tr in body.children):
            assert len(row.children) == len(heads)


@pytest.mark.parametrize("name", ALL)
def test_no_number_that_is_none_is_shown(name: str) -> None:
    html = page(ALL[name]())
    shown = words(read(html.replace(read(html).all("style")[0].text, "")))
    assert not re.search(r"\b(nan|inf|infinity|none|null|true|false)\b", shown, re.IGNORECASE), name
    for svg in read(html).all("svg"):
        assert not re.search(r"nan|inf\b", str([e.attributes for e in svg.children]), re.IGNORECASE)


def test_names_from_a_manifest_cannot_become_elements() -> None:
    html = page(ALL["hostile"]())
    root = read(html)
    assert root.all("script") == []
    assert root.all("b")
    assert HOSTILE not in html
    assert "alert('x')" not in html
    assert words(root.all("header")[0]).startswith(HOSTILE)


def test_no_prompt_no_log_no_secret_and_no_path_gets_in() -> None:
    sample = worked_example()
    prompt = Prompt("my private prompt", ({"content": "my chat"},))
    demand = replace(sample.problem.demand, synthetic=None, prompts=(prompt,))
    html = page(replace(sample, problem=replace(sample.problem, demand=demand)))
    for secret in ("private prompt", "my chat", "a log line", "secret-place"):
        assert secret not in html
    flags = (*sample.flags, "--api-key", "top-secret")
    html = page(replace(sample, flags=flags))
    assert "top-secret" not in html
    assert "REDACTED" in html
    assert "top-secret" not in page(ALL["hostile"]())


def test_the_page_begins_with_the_answer_and_the_flags() -> None:
    root = read(page(worked_example()))
    hero = root.all("section")[0]
    assert words(hero.all("h1")[0]) == "The promise can be kept for $1,460 a month; today’s $7,300 misses it."
    shown = words(hero)
    assert "$7,300 → $1,460" in shown
    assert "2.8 s → 0.64 s" in shown
    assert "That saves $5,840 a month, $70,080 a year." in shown
    assert "-np 16 -c 131072 -no-kvu" in words(hero.all("pre")[0])
    assert "The queue is 1.4 s of 1.9 s" in shown


def test_numbers_are_those_of_the_decision() -> None:
    sample = worked_example()
    root = read(page(sample))
    prices = [words(e) for e in section(root, "What each change bought").all("div") if e.attributes["class"] == "price"]
    costs = [step.monthly_cost for step in sample.decision.steps]
    assert [Decimal(p.replace("$", "").replace(",", "")) for p in prices] == costs
    ladder = section(root, "The cost ladder")
    rungs = [words(e) for e in ladder.all("div") if e.attributes["class"] == "price"]
    assert rungs == ["$1,460", "$2,920", "$4,380", "$5,840", "$7,300"]
    spread = words(section(root, "How waits spread"))
    assert "today: half within 1.74 s, 95 % within 2.8 s" in spread
    assert "the winner: half within 0.397 s, 95 % within 0.64 s" in spread


def test_blocks_are_machines_and_widths_are_costs() -> None:
    bars = section(read(page(worked_example())), "What each change bought").all("svg")
    blocks = [svg.all("rect") for svg in bars]
    assert [len(b) for b in blocks] == [5, 4, 2, 1]
    assert {r.attributes["width"] for b in blocks for r in b} == {"20%"}
    assert [b[0].attributes["class"] for b in blocks] == ["block missed", "block kept", "block kept", "block kept"]


def test_the_parts_of_a_wait_are_drawn_to_one_scale() -> None:
    bar = section(read(page(worked_example())), "Where the wait goes").all("svg")[1]
    thick, thin = (
        {
            r.attributes["class"]: float(r.attributes["width"].rstrip("%"))
            for r in bar.all("rect")
            if words(r.all("title")[0]).startswith(of)
        }
        for of in ("slowest", "mean")
    )
    assert thin["part queue"] / thin["part prefill"] == pytest.approx(1.42 / 0.4, rel=0.01)
    assert thick["part prefill"] == pytest.approx(thin["part prefill"], rel=0.01)
    assert thick["part queue"] > thin["part queue"]
    assert words(bar.all("title")[0]) == (
        "baseline (what runs today): slowest 5 % 2.91 s: queue 2.39 s, prefill 0.4 s, contention 0.12 s, "
        "overhead 4 ms; mean 1.88 s: queue 1.42 s, prefill 0.4 s, contention 60 ms, overhead 4 ms; p95 2.8 s, owed 1 s"
    )


def test_a_trial_without_its_slowest_requests_shows_the_mean() -> None:
    sample = worked_example()
    bare = tuple(replace(r, slowest=None) for r in sample.results)
    waits = section(read(page(replace(sample, results=bare))), "Where the wait goes")
    assert "Bars are the mean wait" in words(waits)
    assert words(waits.all("svg")[1].all("title")[0]).startswith("baseline (what runs today): mean 1.88 s")


def test_a_wait_beyond_the_scale_says_its_length() -> None:
    waits = section(read(page(ALL["infeasible"]())), "Where the wait goes")
    assert [words(t) for t in waits.all("text") if "»" in t.text] == ["to 28.6 s »"]


def test_the_scale_of_waits_is_logarithmic_only_when_the_range_needs_it() -> None:
    assert "logarithmic" in words(section(read(page(worked_example())), "How waits spread"))
    assert "logarithmic" not in words(section(read(page(ALL["budget_exhausted"]())), "How waits spread"))


def test_lowered_settings_are_said_beside_the_answer() -> None:
    hero = words(read(page(demo_like())).all("section")[0])
    assert "Measured with less evidence than a production decision deserves." in hero
    assert "Confidence was lowered to 80 %" in hero
    assert "less evidence" not in words(read(page(worked_example())).all("section")[0])


def test_the_percentile_is_the_one_that_is_owed() -> None:
    root = read(page(demo_like()))
    assert "First token, p90" in words(root.all("section")[0])
    assert "90 % within" in words(section(root, "How waits spread"))


def test_an_infeasible_report_begins_with_what_binds_and_shows_the_nearest() -> None:
    hero = words(read(page(ALL["infeasible"]())).all("section")[0])
    assert hero.index("No configuration") < hero.index("A 4,000-token prompt") < hero.index("nearest")
    assert "27.5 s → 0.46 s" in hero


def test_sections_without_facts_are_left_out() -> None:
    titles = [words(h) for h in read(page(ALL["nothing_measured"]())).all("h2")]
    assert titles == ["The cost ladder", "Every candidate", "How it was measured"]


def test_thousands_of_candidates_are_folded_and_all_there() -> None:
    sample = worked_example()
    base = sample.problem.baseline
    many = tuple(replace(base, context_per_slot=9000 + n) for n in range(5000))
    rejections = tuple(Rejection(c, "CostsMore", "needs at least 9 machines") for c in many)
    decision = replace(sample.decision, rejections=rejections, considered=5001)
    problem = replace(sample.problem, candidates=(base, *many))
    started = time.perf_counter()
    html = page(replace(sample, problem=problem, decision=decision))
    assert time.perf_counter() - started < 10
    details = section(read(html), "Every candidate").all("details")
    assert all("open" not in d.attributes for d in details)
    assert max(len(d.all("tr")) for d in details) == 5001, "5,000 and the header"
    assert len(html) < 2_000_000


def test_many_trials_are_folded_too() -> None:
    sample = worked_example()
    more = tuple(replace(sample.results[3], trial=replace(sample.results[3].trial, rate=6 / n)) for n in range(6, 40))
    waits = section(read(page(replace(sample, results=(*sample.results, *more)))), "Where the wait goes")
    shown, folded = waits.all("table")
    assert len(shown.all("tr")) == 13
    assert len(folded.all("tr")) == 1 + 8 + len(more) - 12
    assert "baseline" in words(shown)


def test_the_same_facts_make_the_same_page() -> None:
    assert page(worked_example()) == page(worked_example())


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_can_be_read_on_its_ground_and_shapes_can_be_seen(scheme: int) -> None:
    css = (resources.files("slotune.report") / "templates" / "report.css").read_text(encoding="utf-8")
    block = re.findall(r":root \{(.*?)\}", css, re.DOTALL)[scheme]
    colours = dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6});", block))

    def contrast(name: str, ground: str) -> float:
        light, dark = sorted((_luminance(colours[name]), _luminance(colours[ground])), reverse=True)
        return (light + 0.05) / (dark + 0.05)

    for name in ("ink", "muted", "accent", "kept", "missed", "open"):
        assert contrast(name, "paper") >= 4.5, name
    assert contrast("ink", "raised") >= 4.5
    for name in ("queue", "prefill", "contention", "overhead", "before", "after"):
        assert contrast(name, "paper") >= 3, name
