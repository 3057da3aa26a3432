"""A llama-server that costs nothing: a discrete-event model of its scheduler, for tests and benchmarks.

``simulate`` gives the records of one run, ``measure`` a whole trial with verdict and GPU-seconds, ``space_384`` and
``worked_example`` problems to search. The physics are linear and shared with the search's bounds, so what it shows is
the order of methods, not the speed of a GPU.
"""

from tests.simulator.machine import NO_CONTINUOUS_BATCHING, Machine, capacity_at_most
from tests.simulator.sandbox import SimulatedSandbox, machines_for, measure, measure_noise_free
from tests.simulator.simulate import simulate
from tests.simulator.spaces import WORKED_EXAMPLE_MACHINE, WORKED_EXAMPLE_STEPS, model_8b, space_384, worked_example

__all__ = [
    "NO_CONTINUOUS_BATCHING",
    "WORKED_EXAMPLE_MACHINE",
    "WORKED_EXAMPLE_STEPS",
    "Machine",
    "SimulatedSandbox",
    "capacity_at_most",
    "machines_for",
    "measure",
    "measure_noise_free",
    "model_8b",
    "simulate",
    "space_384",
    "worked_example",
]
