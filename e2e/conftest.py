"""Fixtures of the end-to-end tests: a cluster for the session, a namespace for each test, images, models."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from e2e.api_server import api_server
from e2e.cluster import Cluster, KubectlError
from e2e.evidence import collect_evidence, operator_logs
from e2e.images.build import ENGINE_IMAGE, PRODUCT_IMAGE, build_images, load_images
from e2e.installed import Operator, installed
from e2e.manifests import gpu_class
from e2e.models import MODELS_CLAIM, make_weights, models_manifests
from e2e.namespaces import namespaces_of_tests, new_namespace, wait_until_gone
from e2e.node.lifecycle import bring_up, standing, take_down
from e2e.node.places import cache_folder, node_name
from e2e.node.programs import find_programs
from e2e.story import Ground
from e2e.waiting import eventually as wait_eventually
from tests.conftest import demo_model

__all__ = ["demo_model"]  # a fixture is seen where its name is

NODE = node_name()


class Images(NamedTuple):
    """Image names that pods can use on this cluster."""

    product: str
    """The operator and the load client."""
    engine: str
    """llama-server."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A node made for this session, one that ``make e2e-up`` left up, or the cluster of ``E2E_KUBECONFIG``."""
    if named := os.environ.get("E2E_KUBECONFIG"):
        yield _existing_cluster(Path(named))
        return
    record, _ = standing(NODE)
    keep = record is not None and record.ready and not record.tied
    node = bring_up(NODE, tied=True, tell=lambda line: print(f"node: {line}", file=sys.stderr))
    try:
        yield Cluster(node.record.kubeconfig, node.programs["kubectl"], node)
    finally:
        if not keep:
            take_down(NODE)


def _existing_cluster(kubeconfig: Path) -> Cluster:
    """Refused unless the user has named its context: the tests create, delete and reconfigure."""
    program = shutil.which("kubectl") or find_programs()["kubectl"]
    known = Cluster(kubeconfig, program)
    try:
        context = known.text("config", "current-context").strip()
    except KubectlError as error:
        pytest.exit(f"E2E_KUBECONFIG={kubeconfig}: {error}", returncode=2)
    if os.environ.get("E2E_CONTEXT") != context:
        pytest.exit(
            f"E2E_KUBECONFIG={kubeconfig}: its current context is {context!r}, and the tests would create and delete "
            f"namespaces there; if that is what you want, set E2E_CONTEXT={context}",
            returncode=2,
        )
    return known


@pytest.fixture(scope="session")
def images(cluster: Cluster) -> Images:
    """The images of this checkout, loaded into the node. Another cluster must be able to pull the two it is told of."""
    if cluster.node is None:
        try:
            return Images(os.environ["E2E_IMAGE"], os.environ["E2E_ENGINE_IMAGE"])
        except KeyError as error:
            pytest.exit(f"E2E_KUBECONFIG is set, so {error} must name an image that its cluster can pull", returncode=2)
    layout = build_images(lambda line: print(f"images: {line}", file=sys.stderr))
    load_images(layout, cluster.node.programs["ctr"], cluster.node.record.containerd_socket)
    return Images(PRODUCT_IMAGE, ENGINE_IMAGE)


@pytest.fixture(scope="session")
def operator(cluster: Cluster, images: Images) -> Iterator[Operator]:
    """The operator, installed with the chart for the whole session."""
    with installed(cluster, images.product) as running:
        yield running


@pytest.fixture(scope="session")
def bare_ground(cluster: Cluster, images: Images, weights: Path, operator: Operator) -> Iterator[Ground]:
    """Everything that takes a LlamaDeployment from apply to an answer."""
    if cluster.node is None:
        pytest.skip("the models are in a folder of this machine, which another cluster's nodes do not see")
    dear, cheap = "e2e-dear", "e2e-cheap"
    with api_server(cluster.kubeconfig) as server, ExitStack() as stack:
        cluster.apply([gpu_class(dear, price="1.60"), gpu_class(cheap, price="0.80")])
        for name in (dear, cheap):
            stack.callback(cluster.delete, "gpuclass", name)
        stack.callback(wait_until_gone, cluster)
        yield Ground(cluster, server, images.engine, weights, dear, cheap, stack)


@pytest.fixture
def ground(bare_ground: Ground) -> Iterator[Ground]:
    """What a test begins here is gone after it."""
    with ExitStack() as stack:
        yield replace(bare_ground, stack=stack)


@pytest.fixture(scope="module")
def shared_ground(bare_ground: Ground) -> Iterator[Ground]:
    """What is begun here is there for all tests of a module."""
    with ExitStack() as stack:
        yield replace(bare_ground, stack=stack)


@pytest.fixture(scope="module")
def spare_gpus(cluster: Cluster) -> Iterator[None]:
    """GPUs beside those that serve. Without this fixture the node has one."""
    if cluster.node is None:
        pytest.skip("the number of GPUs can only be set on a node that the tests made")
    cluster.set_gpus(4)
    yield
    cluster.set_gpus(1)


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own that enforces Pod Security ``restricted``; gone, with all in it, afterwards."""
    with new_namespace(cluster) as name:
        yield name


@pytest.fixture(scope="session")
def weights() -> Path:
    """The folder with SmolLM2-135M in Q4_0, Q8_0 and F16, made when it is missing."""
    return make_weights(cache_folder() / "models")


@pytest.fixture
def models(cluster: Cluster, namespace: str, weights: Path) -> Iterator[str]:
    """The name of a claim in the test's namespace whose volume holds the weights, read-only."""
    if cluster.node is None:
        pytest.skip("the models are in a folder of this machine, which another cluster's nodes do not see")
    volume = f"models-{namespace}"
    cluster.apply(models_manifests(volume, namespace, weights))
    yield MODELS_CLAIM
    cluster.delete("persistentvolume", volume, wait=False)


@pytest.fixture(scope="session")
def eventually() -> Callable[..., object]:
    """``eventually(check, timeout, what)`` of ``e2e.waiting``."""
    return wait_eventually


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the cluster looks like to the report of a test that failed, while its namespaces are still there."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and call.when != "teardown" and isinstance(cluster, Cluster):
        parts = [collect_evidence(cluster, name) for name in namespaces_of_tests(cluster)]
        report.sections.append(("cluster", "\n\n".join([*parts, operator_logs(cluster)])))
    return report
