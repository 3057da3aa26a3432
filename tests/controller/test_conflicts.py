"""Who owns a field is read from the API server's own words."""

from __future__ import annotations

import pytest

from slotune.controller.cluster import ConflictError
from slotune.controller.conflicts import conflict_of

ARGS = '.spec.template.spec.containers[name="llama"].args'
ONE = f'Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using apps/v1: {ARGS}'
TWO = f'Apply failed with 2 conflicts: conflicts with "argocd-controller" using apps/v1:\n- .spec.replicas\n- {ARGS}'
ODD = "Apply failed with 1 conflict"
SEEN_TOO_EARLY = [
    "the object has been modified; please apply your changes to the latest version and try again",
    "Precondition failed: UID in precondition: 1, UID in object meta: 2",
    "uid mismatch: the provided object specified uid 1, and no existing object was found",
]


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


@pytest.mark.parametrize("why", SEEN_TOO_EARLY)
def test_an_object_that_has_changed_belongs_to_nobody_else_for_that(why):
    message = f'Operation cannot be fulfilled on deployments.apps "web": {why}'
    assert conflict_of(ConflictError("apply Deployment web", 409, message)) is None
