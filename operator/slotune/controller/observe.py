"""Looks at everything that one plan rests on, and no more than that: the only part of the controller that reads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from slotune.api.labels import ROLLOUT_MANAGER, TRIAL_LABEL
from slotune.api.quantities import parse_duration
from slotune.api.v1alpha1 import LlamaTrial, Production
from slotune.controller.actions import Delete
from slotune.controller.borrow_stage import needs_slots, next_borrow_step, pending
from slotune.controller.children import Names, is_child, recommendation_name
from slotune.controller.cluster import Cluster, ConflictError, ForbiddenError, NotFoundError, Object
from slotune.controller.conflicts import conflict_of
from slotune.controller.devices import devices_of
from slotune.controller.flights import owner_reference
from slotune.controller.identity import digest_of
from slotune.controller.kept_production import covers, kept_in, lost_fields
from slotune.controller.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    HORIZONTAL_POD_AUTOSCALER,
    JOB,
    LLAMA_DEPLOYMENT,
    NODE,
    SERVICE,
    Kind,
)
from slotune.controller.listening import Listening, listening_of
from slotune.controller.merged_template import lost_names, with_merged_template
from slotune.controller.observed import Observed
from slotune.controller.production_looks import ProductionLooks
from slotune.controller.production_stage import production_of
from slotune.controller.recording_look import lost_reference
from slotune.controller.references import References, gather_references, parse, rival_of
from slotune.controller.release import restore_production
from slotune.controller.retune import Asked, Verdict, judge
from slotune.controller.rollout_manifests import is_patch_for, rollout_manifest
from slotune.controller.rollout_readings import RolloutReader, prometheus_reader
from slotune.controller.rollout_stage import may_carry_on, next_rollout_step, stands
from slotune.controller.settings import Settings
from slotune.controller.store import Key, Store, labels_of
from slotune.controller.survey_look import look_at_survey
from slotune.controller.turns import aside
from slotune.controller.understanding import Surveyed, Understood, refused_unseen, survey_digest, understand
from slotune.controller.world import Trials, gather_trials, read_trial, running_trials
from slotune.llama.log_lines import LogFacts
from slotune.production.looks import Look, take_look
from slotune.production.queries import Pods, queries_for
from slotune.production.watch import next_look, observe
from slotune.rollout.facts import Capacity, Conflict, Readings, Serving, template_digest
from slotune.rollout.facts import Look as RolloutLook
from slotune.rollout.last_good import LastGoodLostError, record_name
from slotune.rollout.memory import Memory
from slotune.rollout.planner import is_open, is_under_way
from slotune.rollout.steps import Apply, Drain, RollBack, RolloutStep, Verify
from slotune.rollout.windows import UnknownTimeZoneError
from slotune.tuning.status_values import digest

__all__ = ["Observer"]

_MAY_CUT_ANSWERS = frozenset({"Draining", "Deferred", "Applying"})
"""Stages of a rollout whose next step depends on what runs on the servers: it can't be told before they were asked."""
REMEMBERED_TRIALS = 512
REMEMBERED = 256
"""Surveys and readings that are kept in memory; all can be read again."""


class Observer:
    """Reads for plans. What it remembers are answers that can't change, and can be lost."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        settings: Settings,
        clock: Callable[[], datetime],
        wake: Callable[[Key], None] = lambda _: None,
    ) -> None:
        self._cluster, self._store, self._settings = cluster, store, settings
        self._reader = RolloutReader(cluster, store, clock)
        self._names = Names(cluster)
        self._looks = ProductionLooks(wake)
        self._surveyed: OrderedDict[tuple[str, str], Surveyed] = OrderedDict()
        self._watched: dict[str, Production] = {}
        self._started: dict[str, LogFacts] = {}
        self._patched: dict[str, str] = {}
        self._compared: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        """Fields that an owned Deployment has lost, with the version of it, by uid."""
        self._trials: OrderedDict[tuple[str, str], LlamaTrial | None] = OrderedDict()

    def _read_trial(self, raw: Object) -> LlamaTrial | None:
        """The model of a LlamaTrial. A search that runs looks at all of its trials every few seconds; most are done."""
        version = (str(raw["metadata"].get("uid")), str(raw["metadata"].get("resourceVersion")))
        if version not in self._trials:
            self._trials[version] = read_trial(raw)
        self._trials.move_to_end(version)
        while len(self._trials) > REMEMBERED_TRIALS:
            self._trials.popitem(last=False)
        return self._trials[version]

    def seen(self, key: Key) -> Object | None:
        """The LlamaDeployment as it was seen last."""
        raw = self._store.get(LLAMA_DEPLOYMENT, *key)
        return None if raw is None else {"apiVersion": LLAMA_DEPLOYMENT.api_version, "kind": "LlamaDeployment"} | raw

    @property
    def running(self) -> int:
        """Trials that hold a node, of anybody."""
        return running_trials(self._store)

    def trials_to_end(self, key: Key) -> tuple[Delete, ...]:
        """The Jobs of all trials of a LlamaDeployment, as far as they were seen."""
        jobs = [job["metadata"] for job in self._store.owned(JOB, *key) if TRIAL_LABEL in labels_of(job)]
        return tuple(Delete(JOB, key[0], job["name"], job["uid"]) for job in jobs)

    async def restore_production(self, raw: Object) -> str:
        """Give production back what was borrowed; what was done, in words."""
        return await restore_production(self._cluster, raw)

    async def observe(self, raw: Object, now: datetime) -> Observed:
        """Everything that a plan for ``raw`` rests on."""
        merged = with_merged_template(raw)
        observed = replace(await self._observe(merged, now), lost_names=lost_names(raw, merged))
        restore = observed.references.status.restore
        if restore is None:
            observed = await self._with_slots(observed)
        else:  # whatever else can't be read: production comes back
            namespace, _ = observed.references.key
            observed = replace(observed, borrowed=await self._deployment(namespace, restore.name))
        return await self._with_production(observed)

    async def _observe(self, raw: Object, now: datetime) -> Observed:
        deployment, _, _ = parse(raw)
        if deployment is None or deployment.spec.suspend:
            references = await self._without_reading(raw)
            trials = await self._trials_of(references, (), {}, now)
            return await self._only_watched(Observed(references, self._settings, now, trials=trials))
        references = await gather_references(raw, self._store, self._cluster)
        observed = Observed(references, self._settings, now, running=self.running)
        observed = await self._with_serving(observed)
        if references.manifests is None or references.rival is not None:
            trials = await self._trials_of(references, (), {}, now)
            return await self._with_rollout(replace(observed, trials=trials), None)
        taken = await self._names.taken(owner_reference(raw), raw["metadata"]["namespace"], now)
        observed = await self._with_survey(replace(observed, taken=taken))
        if not isinstance(observed.understood, Understood):
            trials = await self._trials_of(references, (), {}, now)
            return await self._with_rollout(replace(observed, trials=trials), None)
        understood = observed.understood
        space = understood.space
        hardware = {name: one.is_gpu for name, one in space.hardware.items()}
        trials = await self._trials_of(references, space.contexts, hardware, now, understood.surveyed.image_id)
        lost = await lost_reference(trials, references.key[0], self._cluster)
        observed = self._with_retuning(replace(observed, trials=trials, lost_reference=lost), understood)
        return await self._with_rollout(observed, understood)

    async def _without_reading(self, raw: Object) -> References:
        deployment, status, invalid = parse(raw)
        if deployment is None:
            return await gather_references(raw, self._store, self._cluster)
        return References(raw, deployment, status, invalid)

    async def _trials_of(
        self,
        references: References,
        contexts: Collection[str],
        hardware: Mapping[str, bool],
        now: datetime,
        image_id: str = "",
    ) -> Trials:
        return await gather_trials(
            references,
            contexts,
            self._store,
            self._cluster,
            hardware=hardware,
            started=self._started,
            read=self._read_trial,
            now=now,
            image_id=image_id,
        )

    async def _with_serving(self, observed: Observed) -> Observed:
        """The Deployment and Service of owned mode, or the target."""
        references = observed.references
        if references.target is not None:
            return replace(observed, serving=references.target)
        if references.deployment is None or references.deployment.spec.template is None:
            return observed
        namespace, name = references.key
        serving = await self._deployment(namespace, name)
        return replace(observed, serving=serving, service=await self._get(SERVICE, namespace, name))

    async def _only_watched(self, observed: Observed) -> Observed:
        """Of a LlamaDeployment that is suspended no more than its Deployment. It is asked for where somebody wants to
        see what it delivers; else what a watch has shown is enough: a fleet of them costs no request."""
        references, deployment = observed.references, observed.references.deployment
        if deployment is None:
            return observed
        namespace, name = references.key
        if deployment.spec.target_ref is not None:
            name = deployment.spec.target_ref.name
        rival = rival_of(references.raw, deployment, self._store)
        serving = self._store.get(DEPLOYMENT, namespace, name)
        if serving is None and deployment.spec.observe.prometheus is not None:
            serving = await self._deployment(namespace, name)
        return replace(observed, references=replace(references, rival=rival), serving=serving)

    async def _with_survey(self, observed: Observed) -> Observed:
        digest = survey_digest(observed.references)
        # Of another LlamaDeployment an equal path may be a file of another volume, and the image one of another day.
        whose = (str(observed.references.raw["metadata"]["uid"]), digest)
        known = self._surveyed.get(whose)
        survey = await look_at_survey(
            observed.references, digest, self._store, self._cluster, known=known, now=observed.now
        )
        if survey.surveyed is None:
            return replace(observed, survey=survey, understood=refused_unseen(observed.references))
        if survey.surveyed.build is not None:  # else the first trial may say it, and then another look finds it
            self._surveyed[whose] = survey.surveyed
        while len(self._surveyed) > REMEMBERED:
            self._surveyed.popitem(last=False)
        return replace(observed, survey=survey, understood=understand(observed.references, survey.surveyed))

    async def _with_slots(self, observed: Observed) -> Observed:
        """Whether answers run, when production's GPU is about to be taken."""
        need, understood = pending(observed), observed.understood
        if need is None or not isinstance(understood, Understood) or observed.serving is None:
            return observed
        try:
            step = next_borrow_step(observed, need)
        except UnknownTimeZoneError:  # the plan says so
            return observed
        if not needs_slots(step):
            return observed
        return replace(observed, slots=await self._reader.slots(observed.serving, _listening(observed), observed.now))

    def _with_retuning(self, observed: Observed, understood: Understood) -> Observed:
        """Whether an answer that is there is looked for again."""
        references, deployment = observed.references, observed.references.deployment
        assert deployment is not None
        devices = devices_of(understood.manifests.gpu_classes.values(), self._store.of(NODE).values())
        question = understood.question.model_copy(update={"devices": devices})
        asked = Asked(understood.inputs, digest(understood.space.context), question)
        uid = str(references.raw["metadata"]["uid"])
        production = self._watched.get(uid) or references.status.production
        try:
            verdict = judge(references.status, deployment.spec.retune, asked, production, observed.now)
        except UnknownTimeZoneError:  # the plan says so
            verdict = Verdict()
        return replace(observed, devices=devices, retuning=verdict)

    async def _with_rollout(self, observed: Observed, understood: Understood | None) -> Observed:
        """What the rollout's next step asks to be read; where little is understood, that of one that is under way."""
        references, deployment = observed.references, observed.references.deployment
        assert deployment is not None
        namespace, _ = references.key
        observed = await self._with_kept(observed, understood)
        if understood is None and not may_carry_on(observed):
            return observed
        observed = replace(observed, has_patch=await self._has_patch(references, understood))
        serving = observed.serving
        if serving is None or (references.status.recommendation is None and not may_carry_on(observed)):
            return observed
        observed = replace(observed, autoscalers=await self._autoscalers(namespace))
        memory = Memory.from_status(references.status)
        if deployment.spec.rollout.mode == "Recommend" and not is_open(memory):
            return observed
        capacity = Capacity(None) if understood is None else await self._capacity(references, understood, observed.now)
        slots = None
        if memory.rollout is not None and memory.rollout.stage in _MAY_CUT_ANSWERS:
            slots = await self._reader.slots(serving, _listening(observed), observed.now)
        observed = replace(observed, readings=Readings(settle=_settle(observed), capacity=capacity, slots=slots))
        observed = replace(observed, recorded=await self._recorded(references, memory))
        step = _step(observed, understood)
        if isinstance(step, Drain) and slots is None:
            slots = await self._reader.slots(serving, _listening(observed), observed.now)
            observed = replace(observed, readings=replace(observed.readings, slots=slots))
            step = _step(observed, understood)
        match step:
            case Verify() if step.next_look <= observed.now:
                readings = replace(observed.readings, look=await self._rollout_look(observed, understood))
            case Apply() | RollBack() if references.target is not None:
                readings = replace(observed.readings, conflict=await self._dry_run(observed, understood, step))
            case _:
                readings = observed.readings
        return replace(observed, readings=readings)

    async def _with_kept(self, observed: Observed, understood: Understood | None) -> Observed:
        """What owned mode keeps in the Deployment, and what of it somebody has changed. Only the API server knows how
        it writes what was sent, so it is asked where the words differ, once for each version."""
        references, serving = observed.references, observed.serving
        kept = kept_in(references, understood, serving)
        if kept is None or serving is None or production_of(observed) is None:
            return replace(observed, kept=kept)
        assert references.deployment is not None
        facts, found = Serving.from_deployment(serving, ""), serving["spec"]["template"]
        if facts.source != kept.source or covers(found, kept.pods(references.deployment)):
            return replace(observed, kept=kept)
        version = (facts.uid, facts.resource_version, kept.source)
        if self._compared.get(facts.uid, ((), ()))[0] != version:
            as_sent = await self._cluster.apply(kept.manifest(references, facts), ROLLOUT_MANAGER, dry_run=True)
            self._compared[facts.uid] = (version, lost_fields(found, as_sent["spec"]["template"]))
        return replace(observed, kept=kept, lost=self._compared[facts.uid][1])

    async def _with_production(self, observed: Observed) -> Observed:
        """What Prometheus says, when a look is due."""
        deployment, serving = observed.references.deployment, production_of(observed)
        prometheus = None if deployment is None else deployment.spec.observe.prometheus
        if deployment is None or prometheus is None or serving is None:
            return observed
        namespace, _ = observed.references.key
        uid = str(observed.references.raw["metadata"]["uid"])
        watched = self._watched.get(uid) or observed.references.status.production
        interval_s = float(parse_duration(prometheus.interval))
        if next_look(watched, interval_s, now=observed.now) > observed.now:
            return replace(observed, watched=watched)
        queries, now = queries_for(prometheus, Pods(namespace, serving["metadata"]["name"])), observed.now

        async def ask() -> Look:
            return await take_look(await prometheus_reader(deployment, self._cluster, namespace), queries, now)

        look = await self._looks.take(uid, observed.references.key, ask)
        if look is None:
            return replace(observed, watched=watched, is_asking=True)
        self._watched[uid] = observe(look, deployment.spec.slo, watched, now=observed.now, interval_s=interval_s)
        return replace(observed, production=look, watched=watched)

    async def _rollout_look(self, observed: Observed, understood: Understood | None) -> RolloutLook:
        """One look at the new configuration in production."""
        deployment, record = observed.references.deployment, observed.references.status.rollout
        assert deployment is not None
        assert observed.serving is not None
        number = 0 if record is None else record.kept + record.missed + record.inconclusive
        prometheus = None
        if deployment.spec.observe.prometheus is not None:
            prometheus = await prometheus_reader(deployment, self._cluster, observed.references.key[0])
        async with aside():  # probes and Prometheus take their time
            return await self._reader.look(
                deployment,
                observed.serving,
                _listening(observed),
                None if understood is None else understood.space.demand,
                None if understood is None else understood.space.promise,
                number=number,
                prometheus=prometheus,
                now=observed.now,
            )

    async def _capacity(self, references: References, understood: Understood, now: datetime) -> Capacity:
        """GPUs that nobody holds, of the class that the answer runs on."""
        classes, today = understood.manifests.gpu_classes, understood.baseline.candidate.gpu_class
        recommendation = references.status.recommendation
        wanted = today if recommendation is None else recommendation.gpu_class
        todays = classes[today]
        return await self._reader.capacity(classes.get(wanted, todays), todays, now, template=references.template)

    async def _dry_run(
        self, observed: Observed, understood: Understood | None, step: Apply | RollBack
    ) -> Conflict | None:
        """Who owns a field that the apply would take; None when nobody does.

        Raises ConflictError when the target has changed since it was seen: another look is needed.
        """
        try:
            manifest = rollout_manifest(observed, understood, step)
            await self._cluster.apply(manifest, ROLLOUT_MANAGER, force=False, dry_run=True)
        except ConflictError as error:
            if (conflict := conflict_of(error)) is None:
                raise
            return conflict
        except LastGoodLostError:  # the plan says so
            return None
        return None

    async def _has_patch(self, references: References, understood: Understood | None) -> bool:
        """Whether the ConfigMap with the answer is there, and makes the server of now what is recommended; looked at
        once for each answer and server."""
        namespace, name = references.key
        recommendation = references.status.recommendation
        if recommendation is None:
            return False
        uid, container = str(references.raw["metadata"]["uid"]), understood and understood.manifests.container.name
        answer = digest_of([recommendation.candidate_hash, template_digest(references.template or {}), container])
        if self._patched.get(uid) != answer:
            found = await self._get(CONFIG_MAP, namespace, recommendation_name(name))
            if found is None or not is_child(found, uid):
                return False
            if understood is not None and not is_patch_for(references, understood, found):
                return False
            self._patched[uid] = answer
        return True

    async def _recorded(self, references: References, memory: Memory) -> Object | None:
        """The template to go back to, when a rollout is under way."""
        good = memory.last_good
        if good is None or good.template_digest is None or not is_under_way(memory):
            return None
        namespace, name = references.key
        return await self._get(CONFIG_MAP, namespace, record_name(name, good.template_digest))

    async def _autoscalers(self, namespace: str) -> tuple[Object, ...] | None:
        """Every HorizontalPodAutoscaler there; None when they can't be listed."""
        try:
            return tuple(await self._cluster.list(HORIZONTAL_POD_AUTOSCALER, namespace))
        except ForbiddenError:
            return None

    async def _deployment(self, namespace: str, name: str) -> Object | None:
        return self._store.get(DEPLOYMENT, namespace, name) or await self._get(DEPLOYMENT, namespace, name)

    async def _get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        try:
            found = await self._cluster.get(kind, namespace, name)
        except NotFoundError:
            return None
        self._store.put(found)
        return found


def _step(observed: Observed, understood: Understood | None) -> RolloutStep | None:
    return next_rollout_step(
        observed.references,
        understood,
        observed.serving,
        autoscalers=observed.autoscalers,
        readings=observed.readings,
        now=observed.now,
        stands=stands(observed),
    )


def _settle(observed: Observed) -> timedelta:
    """How far back a look's queries reach: before that, they still see the old pods."""
    deployment, serving = observed.references.deployment, observed.serving
    if deployment is None or deployment.spec.observe.prometheus is None or serving is None:
        return timedelta(0)
    pods = Pods(observed.references.key[0], serving["metadata"]["name"])
    return timedelta(seconds=queries_for(deployment.spec.observe.prometheus, pods).settle_s)


def _listening(observed: Observed) -> Listening:
    return listening_of(observed.references.manifests)
