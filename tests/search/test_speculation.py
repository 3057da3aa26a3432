"""A server that cannot guess is asked once; one that guesses well has to say how well."""

from __future__ import annotations

from dataclasses import replace

from slotune.llama.failures import FailureClass
from slotune.search.decision import Decision
from slotune.search.trial import TrialResult
from tests.search.worlds import World, candidate, live, problem

TODAY = candidate(slots=8)
DRAFTING = [candidate(slots=slots, speculation="draft-simple", draft="tiny") for slots in (8, 16)]
GUESSING = candidate(slots=8, speculation="ngram-mod")


class Counting(World):
    """A world whose servers say how many tokens they guessed."""

    guessed: tuple[int, int] | None = (1000, 640)

    def measure(self, trial):
        result: TrialResult = super().measure(trial)
        if trial.candidate.speculation == "none" or self.guessed is None:
            return result
        drafted, accepted = self.guessed
        return replace(result, latencies=replace(result.latencies, drafted_tokens=drafted, accepted_tokens=accepted))


def decided(world: World) -> Decision:
    return live(problem([TODAY, GUESSING], replicas_today=6), world)[0]


def test_a_model_that_cannot_be_guessed_for_is_not_asked_again_with_other_slots():
    world = World(
        {TODAY: 1.0, GUESSING: 2.0, **dict.fromkeys(DRAFTING, 6.0)},
        failures=dict.fromkeys(DRAFTING, FailureClass.SPECULATION_UNAVAILABLE),
    )
    decision, results = live(problem([TODAY, GUESSING, *DRAFTING], replicas_today=6), world)

    assert sum(result.trial.candidate in DRAFTING for result in results) == 1
    assert decision.choice is not None
    assert decision.choice.candidate == GUESSING, "another way to guess is another question"
    codes = {rejection.candidate: rejection.code for rejection in decision.rejections}
    assert [codes[one] for one in DRAFTING] == ["SpeculationUnavailable"] * 2


def test_the_share_of_right_guesses_is_part_of_why():
    decision = decided(Counting({TODAY: 1.0, GUESSING: 6.0}))

    assert any("64 % of 1,000 tokens that ngram-mod guessed were right" in words for words in decision.proved)


def test_a_winner_that_guessed_nothing_says_so():
    world = Counting({TODAY: 1.0, GUESSING: 6.0})
    world.guessed = None

    assert any("ngram-mod guessed nothing" in words for words in decided(world).not_proved)
