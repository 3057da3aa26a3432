"""A certificate as users have theirs: made out for a name, by an authority that only they know."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

__all__ = ["server_tls"]


def server_tls(folder: Path) -> ssl.SSLContext:
    """For a server. Nobody may skip it in CI, where CI is set."""
    openssl = shutil.which("openssl")
    if openssl is None:
        reason = "there is no openssl, so TLS was not tried: install it (on Debian: apt-get install openssl)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    named = ["-subj", "/CN=chat.example.org", "-addext", "subjectAltName=DNS:chat.example.org"]
    subprocess.run(
        [openssl, *made, *named, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
