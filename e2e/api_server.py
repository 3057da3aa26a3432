"""The API server without kubectl in between: hundreds of questions a minute, and its own words in the answers."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from kubernetes import config

from slotune.api.yaml_dialect import write_documents

__all__ = ["Answer", "ApiServer", "api_server"]

APPLY = "application/apply-patch+yaml"
MANAGER = "e2e"


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: dict[str, Any]

    @property
    def accepted(self) -> bool:
        """Whether the request was done, or would have been."""
        return self.status < 300

    @property
    def message(self) -> str:
        """Why it was not."""
        return str(self.body.get("message", ""))

    @property
    def fields(self) -> set[str]:
        """The fields that are blamed."""
        causes = (self.body.get("details") or {}).get("causes") or []
        return {cause["field"] for cause in causes if cause.get("field", "<nil>") != "<nil>"}


@dataclass(frozen=True, slots=True)
class ApiServer:
    """An API server and the right to do everything there."""

    client: httpx.Client

    def apply(
        self, path: str, manifest: bytes | dict[str, Any], *, dry_run: bool = False, strict: bool = True
    ) -> Answer:
        """Server-side apply of a manifest, with strict validation as ``kubectl apply`` asks for.

        ``path`` is the object's, e.g. ``/apis/slotune.dev/v1alpha1/gpuclasses/l4``; text is sent as it is, so that
        the API server's own YAML reader reads it.
        """
        query = {"fieldManager": MANAGER, "force": "true", "fieldValidation": "Strict"}
        return self._send("PATCH", path, manifest, APPLY, query | ({"dryRun": "All"} if dry_run else {}))

    def create(self, path: str, manifest: bytes | dict[str, Any], *, dry_run: bool = False) -> Answer:
        """As ``kubectl create``; ``path`` is the collection's."""
        query = {"fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        return self._send("POST", path, manifest, "application/yaml", query)

    def get(self, path: str) -> Answer:
        """One object."""
        return self._send("GET", path, b"", "application/yaml", {})

    def _send(
        self, method: str, path: str, body: bytes | dict[str, Any], content_type: str, query: dict[str, str]
    ) -> Answer:
        content = body if isinstance(body, bytes) else write_documents(body).encode()
        headers = {"Content-Type": content_type, "Accept": "application/json"}
        reply = self.client.request(method, path, params=query or None, content=content, headers=headers)
        try:
            parsed = reply.json()
        except ValueError:  # no such kind is answered in plain text
            parsed = {"message": reply.text}
        return Answer(reply.status_code, parsed)


@contextmanager
def api_server(kubeconfig: Path) -> Iterator[ApiServer]:
    """The API server that a kubeconfig's current context names."""
    found = config.new_client_from_config(str(kubeconfig)).configuration
    context = ssl.create_default_context(cafile=found.ssl_ca_cert)
    if not found.verify_ssl:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if found.cert_file:
        context.load_cert_chain(found.cert_file, found.key_file)
    headers = {"Authorization": token} if (token := found.api_key.get("BearerToken")) else {}
    with httpx.Client(base_url=found.host, verify=context, headers=headers, timeout=30) as client:
        yield ApiServer(client)
