"""The build that the first trial says, where the image did not say it to the survey.

Without a GPU's driver some builds don't even start to print their version. Until a trial's log names the build, the
server is read as one that is assumed; then it is read again by its own defaults and flags, and measured as that.
"""

from __future__ import annotations

from dataclasses import replace

from slotune.api.labels import SANDBOX_MANAGER
from slotune.controller.actions import Apply
from slotune.controller.draft import Draft
from slotune.controller.observed import Observed
from slotune.controller.survey_look import facts_config_map
from slotune.controller.understanding import Understood
from slotune.llama.build_number import build_of_text

__all__ = ["read_again"]

_AT_ONCE_S = 0.5


def read_again(draft: Draft, observed: Observed, understood: Understood) -> str:
    """Keep the build that a trial has said, for the next look to read the server by; what goes on, or nothing."""
    if understood.surveyed.build is not None or observed.survey is None:
        return ""
    statuses = [trial.status for trial in observed.trials.finished]
    engines = [status.environment.engine for status in statuses if status is not None and status.environment]
    build = next((found for engine in engines if engine and (found := build_of_text(engine)) is not None), None)
    if build is None or build == understood.baseline.defaults.build:
        return ""
    surveyed = replace(understood.surveyed, build=build)
    draft.do(Apply(facts_config_map(observed.references, observed.survey, surveyed), SANDBOX_MANAGER))
    draft.look_again(_AT_ONCE_S)
    return f"the first trial's llama-server said that it is b{build}: what runs today is read again"
