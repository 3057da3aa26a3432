"""Small documents that are right, to be joined and spoilt by tests."""

from __future__ import annotations

SERVER = "template: {spec: {containers: [{name: llama, args: [-m, /a.gguf]}]}}"
INLINE = 'inline: {load: {requestRate: "6"}, prompts: {synthetic: {inputTokens: {mean: 100}}}, output: {tokens: 10}}'


def deployment(name: str = "chat", workload: str = INLINE, server: str = SERVER, namespace: str = "") -> str:
    where = f", namespace: {namespace}" if namespace else ""
    return f"""\
apiVersion: slotune.dev/v1alpha1
kind: LlamaDeployment
metadata: {{name: {name}{where}}}
spec:
  slo: {{ttftP95: 1s}}
  workload: {{{workload}}}
  models: [{{name: Q8_0, path: /a.gguf}}]
  gpuClasses: [{{name: l4}}]
  {server}
"""


def workload(prompts: str, load: str = 'requestRate: "6"', name: str = "peak", namespace: str = "") -> str:
    where = f", namespace: {namespace}" if namespace else ""
    return f"""\
apiVersion: slotune.dev/v1alpha1
kind: LlamaWorkload
metadata: {{name: {name}{where}}}
spec:
  load: {{{load}}}
  prompts: {{{prompts}}}
  output: {{tokens: 10}}
"""


def gpu_class(name: str = "l4", currency: str = "USD") -> str:
    return f"""\
apiVersion: slotune.dev/v1alpha1
kind: GPUClass
metadata: {{name: {name}}}
spec: {{pricePerHour: "0.80", currency: {currency}}}
"""


def target(containers: str = "[{name: llama}]", replicas: str = "replicas: 3") -> str:
    return f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: chat}}
spec:
  {replicas}
  template: {{spec: {{containers: {containers}}}}}
"""
