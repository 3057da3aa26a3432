"""A search that the operator made, read back from the cluster as one value: the question as it stands, every trial that
answers it, and the answer. Only reads, so whoever may see the objects can take a search along.
"""

from __future__ import annotations

from datetime import datetime

from slotune.controller.cluster import Cluster
from slotune.controller.kinds import LLAMA_DEPLOYMENT
from slotune.controller.merged_template import with_merged_template
from slotune.controller.observed import Survey
from slotune.controller.references import References, gather_references
from slotune.controller.run import fill
from slotune.controller.store import Store
from slotune.controller.survey_look import look_at_survey
from slotune.controller.understanding import NotUnderstood, Understood, survey_digest, understand
from slotune.controller.world import gather_trials, read_trial
from slotune.diagnose.hints import hints
from slotune.search.best_first import next_step
from slotune.search.decision import Decision
from slotune.search.replay import RecordedAnswer, RecordedSearch
from slotune.tuning.errors import InvalidInputError
from slotune.tuning.trial_objects import result_of

__all__ = ["finished_search"]

FIELD = "--llama-deployment"


async def finished_search(cluster: Cluster, namespace: str, name: str, now: datetime) -> RecordedSearch:
    """The search of one LlamaDeployment.

    Raises:
        InvalidInputError: there is none of that name, or its search has no answer yet.
        ClusterError: what it takes can't be read.
    """
    store = Store()
    await fill(store, cluster, (namespace,))
    raw = store.get(LLAMA_DEPLOYMENT, namespace, name)
    if raw is None:
        known = ", ".join(sorted(key[1] for key in store.of(LLAMA_DEPLOYMENT))) or "none"
        raise InvalidInputError(FIELD, name, f"namespace {namespace} has no LlamaDeployment of that name ({known})")
    raw = with_merged_template({"apiVersion": LLAMA_DEPLOYMENT.api_version, "kind": "LlamaDeployment"} | raw)
    references = await gather_references(raw, store, cluster)
    if references.manifests is None:
        raise InvalidInputError(FIELD, name, _its_condition(references))
    survey = await look_at_survey(references, survey_digest(references), store, cluster, known=None, now=now)
    understood = _understood(references, survey)
    space = understood.space
    trials = await gather_trials(
        references,
        space.contexts,
        store,
        cluster,
        hardware={name: one.is_gpu for name, one in space.hardware.items()},
        started={},
        read=read_trial,
        now=now,
        image_id=understood.surveyed.image_id,
    )
    results = tuple(result for trial in trials.finished if (result := result_of(trial)) is not None)
    problem = understood.refined(results)
    step = next_step(problem, results, preferred=hints(problem, results))
    if trials.flights or not isinstance(step, Decision):
        raise InvalidInputError(
            FIELD, name, f"its search has not ended: {len(results)} trials so far; wait until its phase is an answer"
        )
    return RecordedSearch(space, results, RecordedAnswer.from_decision(step))


def _understood(references: References, survey: Survey) -> Understood:
    name = references.key[1]
    if survey.surveyed is None:
        raise InvalidInputError(FIELD, name, f"its weights have not been looked at yet; {_its_condition(references)}")
    understood = understand(references, survey.surveyed)
    if isinstance(understood, NotUnderstood):
        raise InvalidInputError(FIELD, name, f"{understood.reason}: {understood.message}")
    return understood


def _its_condition(references: References) -> str:
    namespace, name = references.key
    return f"see its conditions: kubectl --namespace {namespace} describe lld {name}"
