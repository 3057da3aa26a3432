"""A template is its user's: whatever is edited in it, at whatever time, slotune has an answer that is no defect."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from slotune.controller.cluster import Object
from slotune.controller.kinds import DEPLOYMENT, LLAMA_DEPLOYMENT, SERVICE
from tests.controller.manifests import ARGS, IMAGE, NAMESPACE, owned, target, targeting
from tests.controller.simulation import Simulation, assert_good_statuses, drive
from tests.controller.test_rollout_laws import AUTO, HOUR, VERIFY, args_of, hand_over_args, simulated, until

Edit = Callable[[Object], None]


def _server(template: Object) -> Object:
    containers: list[Object] = template["spec"]["containers"]
    return next((one for one in containers if one["name"] not in {"proxy", "log"}), containers[0])


def _set(**fields: Any) -> Edit:
    def edit(template: Object) -> None:
        for name, value in fields.items():
            _server(template)[name] = value

    return edit


def _pod(**fields: Any) -> Edit:
    return lambda template: template["spec"].update(copy.deepcopy(fields))


def _without_args(template: Object) -> None:
    _server(template).pop("args", None)


def _args_as_command(template: Object) -> None:
    _server(template)["command"] = ["/app/llama-server", *_server(template).pop("args", [])]


def _sidecar(template: Object) -> None:
    template["spec"]["containers"].insert(0, {"name": "proxy", "image": "envoy:1", "ports": [{"containerPort": 80}]})


def _only_a_sidecar(template: Object) -> None:
    template["spec"]["containers"] = [{"name": "log", "image": "fluent-bit:3"}]


def _two_servers(template: Object) -> None:
    template["spec"]["containers"].append({"name": "second", "image": IMAGE, "args": ARGS})


def _marked(template: Object) -> None:
    template["metadata"] = {"labels": {"app": "chat"}, "annotations": {"slotune.dev/candidate": "0123456789"}}


EDITS: Final[dict[str, Edit]] = {
    "another name": _set(name="server"),
    "the name of before": _set(name="llama"),
    "a sidecar": _sidecar,
    "only a sidecar": _only_a_sidecar,
    "two servers": _two_servers,
    "no args": _without_args,
    "args in command": _args_as_command,
    "a flag that is not tuned": _set(args=[*ARGS, "--verbose"]),
    "a flag that nobody knows": _set(args=[*ARGS, "--frobnicate", "7"]),
    "another tuned flag": _set(args=[*ARGS[:3], "2", *ARGS[4:]]),
    "a value that is none": _set(args=[*ARGS[:3], "many", *ARGS[4:]]),
    "another model": _set(args=["-m", "/models/other.gguf", *ARGS[2:]]),
    "no model": _set(args=ARGS[2:]),
    "a shell": _set(command=["sh", "-c"], args=["exec llama-server -m /models/f16.gguf"]),
    "another image": _set(image=f"{IMAGE}-next"),
    "another port": _set(args=[*ARGS, "--port", "9000"], ports=[{"containerPort": 9000, "name": "web"}]),
    "a port that is none": _set(args=[*ARGS, "--port", "http"], ports=[{"name": "http"}]),
    "no ports": _set(ports=[]),
    "a variable": _set(env=[{"name": "LLAMA_ARG_N_PARALLEL", "value": "3"}, {"name": "TZ", "value": "UTC"}]),
    "a variable from elsewhere": _set(env=[{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "x"}}}]),
    "no volume": _pod(volumes=[]),
    "host network": _pod(hostNetwork=True, nodeSelector={"gpu": "l4"}),
    "a mark of ours": _marked,
    "no metadata": lambda template: template.pop("metadata", None),
}


def edit_template(simulation: Simulation, *edits: str, names_container: bool = False) -> None:
    """As a user does, on spec.template or on the target."""
    name = "web" if simulation.cluster.find(DEPLOYMENT, NAMESPACE, "web") else None
    kind = LLAMA_DEPLOYMENT if name is None else DEPLOYMENT
    found = simulation.cluster.find(kind, NAMESPACE, name or "chat")
    assert found is not None
    for edit in edits:
        EDITS[edit](found["spec"]["template"])
    simulation.cluster.change(kind, NAMESPACE, name or "chat", spec={"template": None})
    simulation.cluster.change(kind, NAMESPACE, name or "chat", spec={"template": found["spec"]["template"]})
    if names_container:
        server = _server(found["spec"]["template"])["name"]
        simulation.cluster.change(LLAMA_DEPLOYMENT, NAMESPACE, "chat", spec={"container": server})


def assert_no_defect(simulation: Simulation) -> None:
    """No status that was ever written calls something a defect of slotune."""
    for change in simulation.cluster.changes:
        for condition in (change.object.get("status") or {}).get("conditions") or ():
            assert condition.get("reason") != "InternalError", condition


STAGES: Final[dict[str, Callable[[Simulation], bool]]] = {
    "at the start": lambda simulation: simulation.says("Reconciling")[0] == "True",
    "while it searches": lambda simulation: len(simulation.trials()) > 1,
    "once it is decided": lambda simulation: simulation.says("SearchCompleted")[0] == "True",
    "while it is judged": lambda simulation: (simulation.status().get("rollout") or {}).get("stage") == "Verifying",
    "once it serves": lambda simulation: simulation.says("RolledOut") == ("True", "RolledOut"),
}
MANIFESTS: Final[dict[str, tuple[Object, ...]]] = {
    "owned": (owned(**AUTO, **VERIFY),),
    "owned, recommended": (owned(),),
    "target": (target(), targeting(**AUTO, **VERIFY)),
    "target that stays": (target(), targeting(**AUTO, **VERIFY, retune__triggers=[])),
    "target, recommended": (target(), targeting(retune__triggers=["ModelChange"])),
}


@settings(deadline=None, max_examples=25, phases=(Phase.explicit, Phase.generate))  # to shrink takes minutes
@given(
    manifests=st.sampled_from(sorted(MANIFESTS)),
    stage=st.sampled_from(sorted(STAGES)),
    edits=st.lists(st.sampled_from(sorted(EDITS)), min_size=1, max_size=3),
    later=st.lists(st.sampled_from(sorted(EDITS)), max_size=2),
    names_container=st.booleans(),
    outcome=st.sampled_from(["Kept", "Missed", "Inconclusive"]),
)
def test_no_edit_of_a_template_is_a_defect_of_slotune(manifests, stage, edits, later, names_container, outcome):
    async def law() -> None:
        simulation = simulated(*MANIFESTS[manifests])
        simulation.reader.outcome = outcome
        if manifests.startswith("target") and "recommended" not in manifests:
            hand_over_args(simulation)
        await simulation.run(lambda: STAGES[stage](simulation), most_s=600)
        edit_template(simulation, *edits, names_container=names_container)
        await simulation.run(most_s=120)
        if later:
            edit_template(simulation, *later)
            await simulation.run(most_s=600)
        assert_no_defect(simulation)
        assert_good_statuses(simulation)

    drive(law())


@pytest.mark.parametrize("stage", ["once it is decided", "while it is judged", "once it serves"])
async def test_a_flag_that_came_while_the_answer_stays_is_neither_lost_nor_a_defect(stage):
    simulation = simulated(*MANIFESTS["target that stays"])
    hand_over_args(simulation)
    await simulation.run(lambda: STAGES[stage](simulation), most_s=2 * HOUR)
    edit_template(simulation, "a flag that nobody knows")
    await simulation.run(most_s=HOUR)
    assert_no_defect(simulation)
    assert "--frobnicate" in args_of(simulation, "web")


@pytest.mark.parametrize("manifest", [owned(), owned(**AUTO, **VERIFY)])
async def test_a_container_that_is_renamed_keeps_its_service_and_is_understood(manifest):
    simulation = simulated(manifest)
    await until(simulation, "SearchCompleted", "True", "Found")
    before = simulation.cluster.find(SERVICE, NAMESPACE, "chat")
    edit_template(simulation, "another name")
    await simulation.run(most_s=10)
    assert simulation.cluster.find(SERVICE, NAMESPACE, "chat") == before
    await simulation.run(lambda: simulation.says("Ready")[0] == "True", most_s=2 * HOUR)
    assert simulation.says("Ready")[0] == "True", simulation.status()["conditions"]
    assert_no_defect(simulation)
