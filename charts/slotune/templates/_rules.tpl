{{/* What the operator does inside a namespace. Nothing here is a wildcard, and no rule is about Secrets. */}}
{{- define "slotune.rules.operator" -}}
# What people declare: read, and marked with a finalizer.
- apiGroups: [slotune.dev]
  resources: [llamadeployments]
  verbs: [get, list, watch, patch]
- apiGroups: [slotune.dev]
  resources: [llamaworkloads]
  verbs: [get, list, watch]
# The memory of a search.
- apiGroups: [slotune.dev]
  resources: [llamatrials]
  verbs: [get, list, watch, create, delete]
- apiGroups: [slotune.dev]
  resources: [llamadeployments/status, llamatrials/status]
  verbs: [patch]
# Clusters that check owner references want this of whoever makes a child that blocks its owner's deletion.
- apiGroups: [slotune.dev]
  resources: [llamadeployments/finalizers, llamatrials/finalizers]
  verbs: [update]
# A trial is a Job, closed in by a NetworkPolicy; its result comes back over the pod's log. What belongs to a trial goes
# with it by the garbage collector, so only the two that end early are ever deleted.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
# Read: prompts, traces and settings of servers. Written: records of trials, and the patch that is ready to be applied.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create, patch]
# What serves today, and who else scales it. Changing it is a role of its own.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list]
# How many devices a pod claims.
- apiGroups: [resource.k8s.io]
  resources: [resourceclaimtemplates]
  verbs: [get]
# Written: one at each transition. Read: why the pod of a trial does not start.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [list, create]
{{- end }}

{{/* permissions.deployments: Write. Deleting is left to the garbage collector, by owner references. */}}
{{- define "slotune.rules.rollout" -}}
- apiGroups: [apps]
  resources: [deployments]
  verbs: [create, patch]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, create, patch]
{{- end }}

{{/* permissions.secrets: these, by name. Answers that were recorded for prompts in a Secret lie in a Secret of their own,
     which is made and never read, changed or listed; no rule can name it, since its name follows from what is measured. */}}
{{- define "slotune.rules.secrets" -}}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: {{ toJson .Values.permissions.secrets }}
  verbs: [get]
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
{{- end }}

{{/* What belongs to no namespace, to read. */}}
{{- define "slotune.rules.cluster" -}}
- apiGroups: [slotune.dev]
  resources: [gpuclasses]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
{{- end }}

{{/* Beside these in all namespaces, where writing what belongs to none is no step across a border. */}}
{{- define "slotune.rules.wide" -}}
# How many nodes of a class there are. With watchNamespaces nothing outside of them is written, so it stays empty.
- apiGroups: [slotune.dev]
  resources: [gpuclasses/status]
  verbs: [patch]
# kopf follows definitions, so that the operator may be there before them.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [list, watch]
{{- end }}
