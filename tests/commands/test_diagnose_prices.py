"""A price that is given by itself is in the money of the GPUClass that it is given for."""

from __future__ import annotations

from pathlib import Path

from slotune.commands.diagnose_helps import Helps, read_helps
from slotune.diagnose.symptoms import GPUFacts, Symptoms

HOME = str(Path(__file__).resolve().parents[2] / "examples" / "home-server.yaml")
"""With one GPUClass, whose price is in euros."""


def helps(price: str | None, *files: str) -> Helps:
    return read_helps(
        nvidia_smi=None,
        model=None,
        api_key_file=None,
        files=files,
        name=None,
        gpu_class=None,
        bandwidth=None,
        price_per_hour=price,
    )


def priced(given: Helps, known: GPUFacts | None = None) -> tuple[float | None, str]:
    gpu = given.added_to(Symptoms("a server", gpu=known)).gpu
    assert gpu is not None
    return gpu.price_per_hour, gpu.currency


def test_alone_it_is_in_dollars() -> None:
    assert priced(helps("0.80")) == (0.8, "USD")


def test_beside_a_manifest_it_is_in_the_money_of_its_class() -> None:
    assert priced(helps("0.80", HOME)) == (0.8, "EUR")
    assert priced(helps(None, HOME))[1] == "EUR"


def test_beside_a_class_of_the_cluster_it_is_in_the_money_of_that() -> None:
    assert priced(helps("0.80"), GPUFacts("l4", price_per_hour=1.0, currency="CHF")) == (0.8, "CHF")


def test_a_manifests_price_keeps_its_money_beside_a_class_of_the_cluster() -> None:
    assert priced(helps(None, HOME), GPUFacts("l4", price_per_hour=1.0, currency="CHF"))[1] == "EUR"
