"""A price that is given by itself is in the money of the GPUClass that it is given for."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotune.commands.diagnose_helps import Helps, read_helps
from slotune.diagnose.symptoms import GPUFacts, Symptoms

HOME = str(Path(__file__).resolve().parents[2] / "examples" / "home-server.yaml")
"""With one GPUClass, whose price is in euros."""


def helps(price: str | None, *files: str, bandwidth: str | None = None) -> Helps:
    return read_helps(
        nvidia_smi=None,
        model=None,
        api_key_file=None,
        files=files,
        name=None,
        gpu_class=None,
        bandwidth=bandwidth,
        price_per_hour=price,
    )


def priced(given: Helps, known: GPUFacts | None = None) -> tuple[float | None, str]:
    gpu = given.added_to(Symptoms("a server", gpu=known)).gpu
    assert gpu is not None
    return gpu.price_per_hour, gpu.currency


@pytest.mark.parametrize(
    ("text", "want"),
    [
        *(("300G", 300e9), ("300GB/s", 300e9), ("1008 GB/s", 1008e9), ("1.8TB/s", 1.8e12), ("3e11", 3e11)),
        *(("1GiB", 2**30), ("300 G", 300e9), ("300GBps", 300e9), ("300000000000 B/s", 300e9)),
    ],
)
def test_a_bandwidth_is_read_as_data_sheets_write_it(text: str, want: float) -> None:
    gpu = helps(None, bandwidth=text).gpu
    assert gpu is not None
    assert gpu.bandwidth_bytes_per_s == want


def test_alone_it_is_in_dollars() -> None:
    assert priced(helps("0.80")) == (0.8, "USD")


def test_beside_a_manifest_it_is_in_the_money_of_its_class() -> None:
    assert priced(helps("0.80", HOME)) == (0.8, "EUR")
    assert priced(helps(None, HOME))[1] == "EUR"


def test_beside_a_class_of_the_cluster_it_is_in_the_money_of_that() -> None:
    assert priced(helps("0.80"), GPUFacts("l4", price_per_hour=1.0, currency="CHF")) == (0.8, "CHF")


def test_a_manifests_price_keeps_its_money_beside_a_class_of_the_cluster() -> None:
    assert priced(helps(None, HOME), GPUFacts("l4", price_per_hour=1.0, currency="CHF"))[1] == "EUR"
