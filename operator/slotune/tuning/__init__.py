"""From manifests to an answer on one machine: it joins the pure search to a sandbox and keeps what was measured."""
