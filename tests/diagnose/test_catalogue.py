"""One identifier is one cause for ever, and docs/diagnosis.md has an entry for each, and for nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from slotune.diagnose.catalogue import ALL_RULES, ENTRIES, by_id
from slotune.diagnose.entry import PAGE, Entry, Item
from slotune.diagnose.findings import ENTRIES as OF_TRIALS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / PAGE).read_text()

ANY = next(iter(ENTRIES.values()))


def section(entry: Entry) -> str:
    """What the page says under the entry's heading."""
    found = re.search(rf"^### {entry.id} .*?(?=^### |^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    return "" if found is None else found[0]


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=lambda entry: entry.id)
def test_an_entry_says_what_people_need(entry: Entry) -> None:
    assert re.fullmatch(r"SLT\d{3}", entry.id)
    assert re.fullmatch(r"[A-Z][A-Za-z0-9]+", entry.code)
    assert "\n" not in entry.title
    assert not entry.title.endswith(".")
    assert [text for text in (entry.cause, entry.first, entry.avoid, entry.verify) if not text.endswith(".")] == []


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=lambda entry: entry.id)
def test_the_page_has_the_entry_under_its_link_with_code_and_title(entry: Entry) -> None:
    text = section(entry)
    assert text.startswith(f"### {entry.id} {entry.code}\n")
    assert f'<a id="{entry.link.partition("#")[2]}"></a>' in text
    assert entry.title in plain(text)


def plain(text: str) -> str:
    """Words as a reader sees them: without line breaks, code marks and the addresses of links."""
    return " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "").split())


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=lambda entry: entry.id)
def test_the_page_says_what_the_entry_says_word_for_word(entry: Entry) -> None:
    parts = re.findall(r"^- \*\*([A-Z][a-z ]+)\.\*\* (.*?)(?=^- \*\*|\Z)", section(entry), re.MULTILINE | re.DOTALL)
    said = {name: plain(text) for name, text in parts}
    assert said.pop("Evidence", "").endswith(".")
    said.pop("Reports", None)
    wanted = {"Cause": entry.cause, "Try first": entry.first, "Not": entry.avoid, "Verify": entry.verify}
    assert said == {name: plain(text) for name, text in wanted.items()}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=lambda entry: entry.id)
def test_the_page_names_the_reports_that_the_entry_names(entry: Entry) -> None:
    cited = set(re.findall(r"#\d{4,}", entry.cause + entry.first + entry.avoid + entry.verify))
    _, _, reports = section(entry).partition("- **Reports.** ")
    assert cited <= set(re.findall(r"#\d{4,}", reports))


def test_the_page_has_nothing_else() -> None:
    assert re.findall(r"^### (SLT\S*)", TEXT, re.MULTILINE) == list(ENTRIES)
    assert re.findall(r'<a id="(.*?)"></a>', TEXT) == [one.lower() for one in ENTRIES]
    assert set(re.findall(r"\bSLT\d+", TEXT)) <= set(ENTRIES)


def test_the_page_has_the_checklist_with_its_questions() -> None:
    table = re.findall(r"^\| (\w+) \| (.+\?) \|$", TEXT, re.MULTILINE)
    assert table == [item.value for item in Item]


def test_what_is_found_of_trials_is_in_the_catalogue() -> None:
    assert [entry.id for entry in OF_TRIALS if ENTRIES.get(entry.id) != entry] == []


def test_every_rule_can_find_what_the_catalogue_has() -> None:
    assert [rule.id for rule in ALL_RULES if rule.id not in ENTRIES] == []
    assert [rule.id for rule in ALL_RULES if rule.item is not ENTRIES[rule.id].item] == []


def test_the_rules_come_in_the_order_of_the_checklist() -> None:
    """Whoever reads undecided items reads them in that order."""
    items = list(Item)
    places = [items.index(rule.item) for rule in ALL_RULES]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(ANY, code="SomethingElse"), id="an identifier for two causes"),
        pytest.param(replace(ANY, id="SLT999"), id="a code under two identifiers"),
        pytest.param(replace(ANY, title="Said in other words"), id="an entry in two versions"),
    ],
)
def test_two_entries_that_share_a_name_are_refused(other: Entry) -> None:
    with pytest.raises(ValueError, match=f"{ANY.id}.*{other.id}|{other.id}.*{ANY.id}"):
        by_id([ANY, other])


def test_an_entry_may_be_listed_by_two_modules() -> None:
    assert list(by_id([ANY, ANY]).values()) == [ANY]
