"""Everything that one plan rests on, as a value: what was read, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from slotune.api.v1alpha1 import Production
from slotune.controller.children import TakenError
from slotune.controller.cluster import Object
from slotune.controller.kept_production import Kept
from slotune.controller.recordings import LostReference
from slotune.controller.references import References
from slotune.controller.retune import Verdict
from slotune.controller.settings import Settings
from slotune.controller.understanding import NotUnderstood, Surveyed, Understood
from slotune.controller.world import Trials
from slotune.production.looks import Look
from slotune.rollout.facts import Readings, Slots
from slotune.sandbox.judgement import Judgement
from slotune.sandbox.pod_facts import JobFacts
from slotune.sandbox.survey_outcome import Surveyed as Found

__all__ = ["Observed", "Survey"]


@dataclass(frozen=True, slots=True)
class Survey:
    """The look at the weights and the image that must come before a search."""

    digest: str
    name: str
    """Of its Job and of the ConfigMap with what it found."""
    surveyed: Surveyed | None = None
    """None while it is not known."""
    job: JobFacts | None = None
    judgement: Found | Judgement | None = None
    """Where the Job stands; None while there is none, or once the facts are kept."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One look."""

    references: References
    settings: Settings
    now: datetime
    understood: Understood | NotUnderstood | None = None
    """None while the weights were not looked at, and nothing else is in the way."""
    survey: Survey | None = None
    trials: Trials = field(default_factory=Trials)
    lost_reference: LostReference | None = None
    """Recorded answers that a comparison is about to need, and that are gone."""
    running: int = 0
    """Trials that run in the whole cluster."""
    serving: Object | None = field(default=None, repr=False)
    """The Deployment that serves production: slotune's own or the target."""
    borrowed: Object | None = field(default=None, repr=False)
    """While production is borrowed: the Deployment that was scaled down; None when it is gone."""
    slots: Slots | None = None
    """Answers at work, where production's GPU is about to be taken."""
    devices: tuple[str, ...] = ()
    """GPUs with their drivers that the nodes' labels name."""
    retuning: Verdict = field(default_factory=Verdict)
    """Whether an answer that is there is looked for again."""
    service: Object | None = field(default=None, repr=False)
    """The Service of owned mode, whoever made it."""
    kept: Kept | None = field(default=None, repr=False)
    """What owned mode keeps in the Deployment; None: it is not known now, or the Deployment is not slotune's."""
    lost: tuple[str, ...] = ()
    """Fields of the Deployment's pod template that are no longer as slotune sent them."""
    taken: TakenError | None = None
    """What has a name that this LlamaDeployment needs, and is not its own."""
    lost_names: tuple[str, ...] = ()
    """Of ports of ``spec.template``, as sentences."""
    has_patch: bool = False
    """Whether the ConfigMap with the recommendation is there."""
    autoscalers: tuple[Object, ...] | None = field(default=(), repr=False)
    """None: they can't be listed, so one may own the replicas."""
    readings: Readings = field(default_factory=Readings)
    """What was looked at for the rollout."""
    recorded: Object | None = field(default=None, repr=False)
    """The pod template to go back to, when a rollout needs it."""
    production: Look | None = None
    """What Prometheus says; None when it was not asked now."""

    is_asking: bool = False
    """Whether it is being asked: the end of that brings about another look."""
    watched: Production | None = None
    """What was seen of production last, by this process; more often than it is worth a write."""

    @property
    def needs_thought(self) -> bool:
        """Whether planning may take more than a moment."""
        return isinstance(self.understood, Understood)
