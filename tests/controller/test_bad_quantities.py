"""The API server says that an amount is none, not which: that is found here."""

from __future__ import annotations

from typing import Any

import pytest

from slotune.controller.bad_quantities import bad_quantities


def manifest(**resources: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "a"}, {"name": "llama", "resources": resources}]}}


@pytest.mark.parametrize("value", ["lots", "1GiB", "1 Gi", "", "-", "1e", "0x10", None, ["1"], True, "1,5", "1Ki2"])
def test_an_amount_that_is_none_is_told_with_its_field(value):
    (found,) = bad_quantities(manifest(limits={"memory": value, "cpu": "2"}))
    assert found == f"spec.containers[1].resources.limits.memory is {value}"


@pytest.mark.parametrize("value", ["1", "1.5", "100m", "1Gi", "1e3", "1E", "5E-3", ".5", "5.", "+1", "-1", 2, "3u"])
def test_what_kubernetes_takes_is_no_fault(value):
    assert bad_quantities(manifest(limits={"cpu": value}, requests={"nvidia.com/gpu": value})) == []


def test_the_size_of_a_volume_is_one_too_and_all_are_told():
    found = manifest(requests={"cpu": "x"})
    found["spec"]["volumes"] = [{"name": "v", "emptyDir": {"sizeLimit": "big"}}]
    assert bad_quantities(found) == [
        "spec.containers[1].resources.requests.cpu is x",
        "spec.volumes[0].emptyDir.sizeLimit is big",
    ]
