"""Look, plan, act: once through, for one LlamaDeployment. What goes wrong becomes a condition and a later look.

It keeps nothing between two runs but caches that can be lost, so an operator that is killed anywhere goes on where the
cluster stands.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from datetime import datetime

from slotune import __version__
from slotune.controller.act import Hands, SlotTakenError
from slotune.controller.backoff import FIRST_S, failed_again, seconds_left, wait_s
from slotune.controller.children import TakenError
from slotune.controller.cluster import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    Object,
    RefusedError,
    SchemaTooOldError,
    UnavailableError,
)
from slotune.controller.conflicts import conflict_of
from slotune.controller.draft import RESYNC_S, Draft, Plan
from slotune.controller.events import event_object
from slotune.controller.heartbeat import Heartbeat
from slotune.controller.metrics import OperatorMetrics
from slotune.controller.observe import Observer
from slotune.controller.plan import MISSING_S, make_plan
from slotune.controller.reasons import Reason
from slotune.controller.references import References, parse
from slotune.controller.settings import Settings
from slotune.controller.store import Key
from slotune.controller.turns import Turns
from slotune.controller.wakes import Wakes

__all__ = ["Reconciler"]

CONFLICTS_OF_HASTE = 3
"""Conflicts in a row from which on it is not a matter of having looked too early."""
UNAVAILABLE_OF_HASTE = 3
"""Failures in a row from which on a person may want to know."""
AT_ONCE = 16
"""LlamaDeployments that are worked on at the same time: bounds memory and requests when a fleet wakes."""

_BEFORE_THE_FIELD = re.compile(r"^failed to create typed patch object \([^)]*\): ")

log = logging.getLogger("slotune.controller")


class Reconciler:
    """Drives every LlamaDeployment of one operator."""

    def __init__(
        self,
        observer: Observer,
        hands: Hands,
        wakes: Wakes,
        *,
        settings: Settings,
        metrics: OperatorMetrics,
        heartbeat: Heartbeat,
        clock: Callable[[], datetime],
    ) -> None:
        self._observer, self._hands, self._wakes = observer, hands, wakes
        self._settings, self._metrics, self._heartbeat, self._clock = settings, metrics, heartbeat, clock
        self._turns = Turns(AT_ONCE)
        self._unwritten: dict[Key, int] = {}
        """Failures in a row that could not be written anywhere: the API server is down, or takes no such status."""
        self._conflicts: dict[Key, int] = {}
        """Conflicts in a row."""

    async def reconcile(self, key: Key) -> float:
        """See :class:`slotune.controller.handlers.Scheduled`."""
        async with self._turns.turn():
            with self._heartbeat.working(time.monotonic), self._metrics.reconciling() as run:
                try:
                    seconds = await self._once(key)
                except UnavailableError as error:
                    run.result = "unavailable"
                    return await self._unavailable(key, error)
                except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and tried again later
                    run.result = "error"
                    return await self._failed(key, error)
        self._unwritten.pop(key, None)
        self._conflicts.pop(key, None)
        return seconds

    async def release(self, key: Key) -> float:
        """See :class:`slotune.controller.handlers.Scheduled`."""
        raw = self._observer.seen(key)
        if raw is None:
            return 0.0
        try:
            if told := await self._observer.restore_production(raw):
                log.info("%s/%s: %s", *key, told)
        except ClusterError as error:
            log.warning("%s/%s: it stays until production has its GPU back: %s", *key, error)
            return FIRST_S
        return 0.0

    async def _once(self, key: Key) -> float:
        raw = self._observer.seen(key)
        if raw is None or raw["metadata"].get("deletionTimestamp"):
            return RESYNC_S
        now = self._clock()
        observed = await self._observer.observe(raw, now)
        # A search may think for seconds; the watches go on meanwhile.
        plan = await asyncio.to_thread(make_plan, observed) if observed.needs_thought else make_plan(observed)
        self._wakes.wait_for_slot(key, plan.waits_for_slot)
        before = self._observer.running
        try:
            await self._carry_out(raw, plan, now)
        except SlotTakenError:  # another LlamaDeployment was quicker; the end of its trial wakes this one
            self._wakes.wait_for_slot(key, waits=True)
        if self._observer.running < before:  # a trial that got no node lets others go first
            self._wakes.slot_is_free()
        self._metrics.trials_running(self._observer.running)
        return plan.requeue_s

    def woken(self) -> None:
        """See :class:`slotune.controller.handlers.Scheduled`."""
        self._metrics.woken()

    async def _carry_out(self, raw: Object, plan: Plan, now: datetime) -> None:
        """Act first, then say so: what a step must not forget was written down by the step before it. An action that
        fails leaves the status of before, to which the failure is then added."""
        await self._hands.carry_out(plan.actions)
        for outcome in plan.outcomes:
            self._metrics.trial_ended(outcome)
        if await self._hands.apply_status(raw, plan.status):
            reference = {"apiVersion": raw["apiVersion"], "kind": raw["kind"], **raw["metadata"]}
            identity = self._settings.identity
            await self._hands.tell(
                [event_object(note, reference, now=now, reporting_instance=identity) for note in plan.notes]
            )

    async def _unavailable(self, key: Key, error: UnavailableError) -> float:
        """Wait, ever longer. What stays so is said where it can be: one request may fail for a webhook or a kubelet
        that is down, while the API server answers all others."""
        log.warning("%s/%s: %s", *key, error)
        seconds = self._ever_longer(key)
        if self._unwritten[key] >= UNAVAILABLE_OF_HASTE:
            seconds = max(seconds, await self._failed(key, error))
        return error.retry_after_s or seconds

    def _ever_longer(self, key: Key) -> float:
        count = self._unwritten[key] = self._unwritten.get(key, 0) + 1
        return wait_s(count)

    async def _failed(self, key: Key, error: Exception) -> float:
        """Say what went wrong in the status, and try again after a time that follows from the status."""
        raw = self._observer.seen(key)
        hasty = isinstance(error, ConflictError) or (isinstance(error, TakenError) and error.goes)
        conflicts = self._conflicts[key] = self._conflicts.get(key, 0) + hasty
        if raw is None or 0 < conflicts < CONFLICTS_OF_HASTE:  # seen too early: the next look is enough
            log.info("%s/%s: %s", *key, error)
            return FIRST_S
        if isinstance(error, ClusterError):
            log.warning("%s/%s: %s", *key, error)
        else:
            log.exception("%s/%s: this is a defect of slotune", *key)
        _, status, _ = parse(raw)
        draft = Draft(References(raw, None, status), self._clock())
        reason, message = _of_the_template(raw, error) or _told(error)
        failures = failed_again(status.failures, reason, self._clock())
        draft.set(failures=failures, phase="Failed")
        if isinstance(error, TakenError):
            draft.unresolved(reason, message)
        else:
            draft.stalled(reason, message)
        try:
            await self._bring_back(key, raw)
            await self._carry_out(raw, draft.close(), self._clock())
        except SchemaTooOldError:
            await self._say_the_least(key, raw, draft.close())
            return self._ever_longer(key)
        except ClusterError as second:
            log.warning("%s/%s: %s", *key, second)
            return self._ever_longer(key)
        seconds = seconds_left(failures, self._clock())
        return min(MISSING_S, seconds) if isinstance(error, TakenError) else seconds  # no watch tells when it goes

    async def _bring_back(self, key: Key, raw: Object) -> None:
        """While nothing can be measured, production is not kept down for it. The next look that succeeds sees it."""
        if not (raw.get("status") or {}).get("restore"):
            return
        try:
            await self._hands.carry_out(self._observer.trials_to_end(key))
            if told := await self._observer.restore_production(raw):
                log.info("%s/%s: %s", *key, told)
        except ClusterError as error:
            log.warning("%s/%s: %s", *key, error)

    async def _say_the_least(self, key: Key, raw: Object, plan: Plan) -> None:
        """A status of which every CRD knows every field: why there is no more of it. What is left out is removed, so
        the way back for production stays, which the CRD knew when it was written."""
        known = ["conditions", "observedGeneration", "phase"]
        known += [name for name in ("restore", "lastRestored") if name in (raw.get("status") or {})]
        try:
            await self._hands.apply_status(raw, {name: plan.status[name] for name in known if name in plan.status})
        except ClusterError as error:
            log.warning("%s/%s: %s", *key, error)


def _of_the_template(raw: Object, error: Exception) -> tuple[Reason, str] | None:
    """A Deployment of ours is the user's template, so what is wrong with it is wrong there, under the same names."""
    own = rf"\bdeployments?[/ ]{re.escape(raw['metadata']['name'])}$"
    if type(error) is not RefusedError or "template" not in (raw.get("spec") or {}):
        return None
    if re.search(own, error.what, re.IGNORECASE) is None:
        return None
    said = _BEFORE_THE_FIELD.sub("", error.message).removeprefix(".")
    where = "" if said.startswith("spec.template") else "spec.template: "
    cure = "Correct the template: the API server refuses the Deployment that is made of it."
    return Reason.REFUSED_BY_CLUSTER, f"{where}{said}. {cure}"


def _told(error: Exception) -> tuple[Reason, str]:
    if isinstance(error, ClusterError):
        return _not_done(error)
    said = f"slotune failed with {type(error).__name__}; its log has the details. It tries again."
    return Reason.INTERNAL_ERROR, said


def _not_done(error: ClusterError) -> tuple[Reason, str]:
    """Why a request came to nothing."""
    if isinstance(error, TakenError):
        return Reason.TARGET_CONFLICT, f"{error}."
    if isinstance(error, SchemaTooOldError):
        cure = f"Apply the CRDs of slotune {__version__} (slotune crds | kubectl apply --server-side -f -)."
        return Reason.VERSION_SKEW, f"The cluster's CRDs are of an older slotune: {error.message}. {cure}"
    if isinstance(error, ForbiddenError):
        cure = "Give it the right, or turn off what needs it."
        if re.search(r"\bsecrets?\b", error.what, re.IGNORECASE):
            cure = "Name the Secret in the chart's permissions.secrets: its role may then make Secrets, too."
        if re.search(r"\b(deployments?|services?)\b", error.what, re.IGNORECASE):
            cure = (
                "Set permissions.deployments to Write in the chart (without it: the component config/rollout), or have "
                "nothing written: sandbox.mode SpareGPU, rollout.mode Recommend, spec.targetRef."
            )
        return Reason.FORBIDDEN, f"slotune's role does not allow {error.what}: {error.message}. {cure}"
    if isinstance(error, UnavailableError):
        return Reason.UNAVAILABLE, f"{error.what} fails again and again: {error.message}. It is tried again."
    if isinstance(error, ConflictError) and conflict_of(error) is not None:
        cure = "Set rollout.mode to Recommend, and let the owner make the change."
        return Reason.FIELD_OWNED_BY_OTHER, f"{error.what} meets what others own: {error.message}. {cure}"
    return Reason.REFUSED_BY_CLUSTER, f"The API server refuses {error.what}: {error.message}."
