-- How Argo CD reads the health of a LlamaDeployment. It goes into the ConfigMap argocd-cm, under the key
-- resource.customizations.health.slotune.dev_LlamaDeployment; without it Argo CD calls every LlamaDeployment healthy.
-- Argo CD gives the object as obj and reads the table that is returned. Its Lua has no string library.
local health = { status = "Progressing", message = "The operator has not looked at it yet" }

if obj.spec ~= nil and obj.spec.suspend == true then
  return { status = "Suspended", message = "spec.suspend is true: production stays as it is" }
end
if obj.status == nil or obj.status.conditions == nil then
  return health
end
if obj.status.observedGeneration ~= obj.metadata.generation then
  health.message = "The operator has not looked at the newest spec yet"
  return health
end

local ready, reconciling, stalled
for _, condition in ipairs(obj.status.conditions) do
  if condition.type == "Ready" then
    ready = condition
  elseif condition.type == "Reconciling" and condition.status == "True" then
    reconciling = condition
  elseif condition.type == "Stalled" and condition.status == "True" then
    stalled = condition
  end
end

if stalled ~= nil then
  return { status = "Degraded", message = stalled.message }
end
if reconciling ~= nil then
  return { status = "Progressing", message = reconciling.message }
end
if ready == nil then
  return health
end
if ready.status == "True" then
  return { status = "Healthy", message = ready.message }
end
-- Nobody but a person can go on from here, as with a paused Rollout.
if ready.reason == "AwaitingApproval" then
  return { status = "Suspended", message = ready.message }
end
return { status = "Progressing", message = ready.message }
