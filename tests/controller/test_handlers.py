"""How kopf is set up: where it finds the API server."""

from __future__ import annotations

import kopf
import pytest

from slotune.controller.handlers import at_service_address

BY_NAME = kopf.ConnectionInfo(server="https://kubernetes.default.svc", token="t", ca_path="/ca.crt")


@pytest.mark.parametrize(
    ("host", "server"),
    [("10.96.0.1", "https://10.96.0.1:6443"), ("fd00::1", "https://[fd00::1]:6443")],
)
def test_the_api_server_is_reached_without_dns(host: str, server: str) -> None:
    found = at_service_address(BY_NAME, {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "6443"})
    assert (found.server, found.token, found.ca_path) == (server, "t", "/ca.crt")


def test_without_an_address_the_name_is_kept() -> None:
    assert at_service_address(BY_NAME, {}) == BY_NAME
