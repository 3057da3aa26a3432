"""Who owns a field is read from the API server's own words."""

from __future__ import annotations

import pytest

from slotune.controller.cluster import ConflictError
from slotune.controller.conflicts import conflict_of

ARGS = '.spec.template.spec.containers[name="llama"].args'
ONE = f'Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using apps/v1: {ARGS}'
TWO = f'Apply failed with 2 conflicts: conflicts with "argocd-controller" using apps/v1:\n- .spec.replicas\n- {ARGS}'
ODD = "the object has been modified; please apply your changes to the latest version and try again"


@pytest.mark.parametrize(
    ("message", "manager", "field"),
    [
        (ONE, "kubectl-client-side-apply", ARGS),
        (TWO, "argocd-controller", ".spec.replicas"),
        (ODD, "another manager", ".spec.template"),
    ],
)
def test_the_manager_and_the_field_are_named(message, manager, field):
    found = conflict_of(ConflictError("apply Deployment web", 409, message))
    assert (found.manager, found.field) == (manager, field)
