"""Servers as people run them: each file of the corpus says in its head what is read from it, or why it is refused.

``reads`` has fields of the candidate, ``lives`` where a flag is stated (``; `` between flags, ``, `` between places),
``note`` words of a note, ``refuses`` a reason and words of its sentence, ``error`` words of what a flag has against it,
``container`` the name in the LlamaDeployment and ``build`` what the program itself said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from slotune.api.kubernetes_types import AppsDeployment, PodTemplate
from slotune.api.server_container import server_container
from slotune.api.v1alpha1 import ModelVariant
from slotune.llama.build_arguments import unsupported
from slotune.rollout.change import compose_change, kustomize_files
from slotune.tuning.baseline import Baseline, read_baseline
from slotune.tuning.errors import InvalidInputError
from slotune.tuning.refusal import Refusal
from slotune.tuning.server_refusals import refusals

FOLDER = Path(__file__).parent / "servers"
FILES = sorted(FOLDER.glob("*.yaml"))
VARIANTS = (ModelVariant(name="Q8", path="/models/model.gguf"),)
SECRET = "hunter2"


@dataclass(frozen=True)
class Server:
    """One file."""

    head: tuple[tuple[str, str], ...]
    deployment: Mapping[str, Any]
    config_maps: Mapping[str, Mapping[str, str]]
    claim_templates: Mapping[str, Mapping[str, Any]]

    def said(self, key: str) -> list[str]:
        return [value for name, value in self.head if name == key]

    @property
    def template(self) -> PodTemplate:
        return AppsDeployment.model_validate(self.deployment).spec.template

    @property
    def container(self) -> str | None:
        return next(iter(self.said("container")), None)

    def refusals(self) -> tuple[Refusal, ...]:
        return refusals(
            self.template,
            self.container,
            self.deployment,
            gpu_resource="nvidia.com/gpu",
            config_maps=self.config_maps,
            claim_templates=self.claim_templates,
        )

    def read(
        self, template: PodTemplate | None = None, config_maps: Mapping[str, Mapping[str, str]] | None = None
    ) -> Baseline:
        pod = template or self.template
        container = server_container(pod, self.container)
        assert container is not None
        return read_baseline(
            pod,
            container,
            self.config_maps if config_maps is None else config_maps,
            variants=VARIANTS,
            training_context={"Q8": 32768},
            gpu_class="l4",
            build=next(map(int, self.said("build")), None),
        )


@cache
def server(path: Path) -> Server:
    head = re.findall(r"^# (\w+): (.*)$", path.read_text(), re.MULTILINE)
    documents: dict[str, dict[str, Any]] = {}
    for document in yaml.safe_load_all(path.read_text()):
        documents.setdefault(document["kind"], {})[document["metadata"]["name"]] = document
    return Server(
        tuple(head),
        next(iter(documents["Deployment"].values())),
        {name: document["data"] for name, document in documents.get("ConfigMap", {}).items()},
        {name: document["spec"]["spec"] for name, document in documents.get("ResourceClaimTemplate", {}).items()},
    )


def files(key: str) -> Any:
    found = [path for path in FILES if server(path).said(key)]
    return pytest.mark.parametrize("path", found, ids=lambda path: path.stem)


def test_every_file_says_what_is_wanted() -> None:
    for path in FILES:
        assert {name for name, _ in server(path).head} & {"reads", "refuses", "error"}, path.name


@files("reads")
def test_a_server_is_read_as_it_runs(path: Path) -> None:
    it = server(path)
    assert it.refusals() == ()
    baseline = it.read()
    for wish in re.split(r", (?=\w+=)", it.said("reads")[0]):
        field, _, want = wish.partition("=")
        found = getattr(baseline.candidate, field)
        assert (" ".join(found) if isinstance(found, tuple) else str(found)) == want, field


@files("lives")
def test_each_setting_is_found_where_it_lives(path: Path) -> None:
    baseline = server(path).read()
    for wish in server(path).said("lives")[0].split("; "):
        flag, _, places = wish.partition(" ")
        found = ", ".join(str(origin) for origin in baseline.origins[flag])
        assert found == places, flag


@files("note")
def test_what_would_surprise_is_said(path: Path) -> None:
    notes = server(path).read().notes
    for words in server(path).said("note"):
        assert any(words in note for note in notes), notes


@files("refuses")
def test_a_refusal_has_a_reason_and_one_sentence(path: Path) -> None:
    it = server(path)
    wants = [want.partition(": ") for want in it.said("refuses")]
    found = it.refusals()

    assert [refusal.reason for refusal in found] == [reason for reason, _, _ in wants], [str(one) for one in found]
    for refusal, (_, _, words) in zip(found, wants, strict=True):
        assert words in refusal.cure
        assert refusal.field
        assert "\n" not in str(refusal)
        assert re.fullmatch(r"[A-Z][A-Za-z]+", refusal.reason)


@files("error")
def test_an_error_names_the_flag_and_the_cure(path: Path) -> None:
    it = server(path)
    assert it.refusals() == ()
    with pytest.raises(InvalidInputError) as raised:
        it.read()
    assert it.said("error")[0] in str(raised.value)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nothing_that_is_said_has_a_secret_in_it(path: Path) -> None:
    it = server(path)
    said = repr(it.refusals())
    if it.said("reads"):
        baseline = it.read()
        said += repr(baseline) + " ".join(baseline.flags_for(baseline.candidate))
    assert SECRET not in said


@files("reads")
def test_each_of_these_servers_can_be_made_a_candidate(path: Path) -> None:
    it = server(path)
    baseline = it.read()
    candidate = replace(baseline.candidate, parallel_slots=3, context_per_slot=512, ubatch_size=64, kv_unified=False)
    assert not unsupported(candidate, baseline.defaults)
    container = server_container(it.template, it.container)
    assert container is not None

    change = compose_change(it.template, container, baseline, candidate, config_maps=it.config_maps)
    pod = change.patched_template(it.deployment["spec"]["template"])
    after = it.read(PodTemplate.model_validate(pod), change.patched_config_maps(it.config_maps))

    assert after.candidate == replace(candidate, threads=candidate.threads or baseline.threads)
    assert (after.host, after.port, after.alias) == (baseline.host, baseline.port, baseline.alias)
    changed = {"args", "command", "env"}
    for before, now in zip(
        it.deployment["spec"]["template"]["spec"]["containers"], pod["spec"]["containers"], strict=True
    ):
        keys = changed if before["name"] == container.name else set()
        assert {key: value for key, value in now.items() if key not in keys} == {
            key: value for key, value in before.items() if key not in keys
        }
    rest = {key: value for key, value in pod["spec"].items() if key != "containers"}
    assert rest == {
        key: value for key, value in it.deployment["spec"]["template"]["spec"].items() if key != "containers"
    }
    for text in kustomize_files(change, deployment="llm").values():
        assert isinstance(yaml.safe_load(text), dict)
        assert SECRET not in text


def test_two_containers_with_one_name_are_refused() -> None:
    template = server(FOLDER / "two-servers.yaml").template
    twice = template.spec.containers[0]
    pod = template.spec.model_copy(update={"containers": (twice, twice)})

    found = refusals(template.model_copy(update={"spec": pod}), "chat")

    assert [refusal.reason for refusal in found] == ["DuplicateContainer"]
