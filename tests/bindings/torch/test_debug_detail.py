"""TORCH_DISTRIBUTED_DEBUG=DETAIL: torch wraps the backend, and compares the ranks' calls before each collective."""

import inspect
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist

import ranks
import test_collectives
import test_groups
import test_layouts
import test_transfers
import tutti_torch

# The wrapper waits for all ranks of a group before each operation, with every backend.
ONE_ORDER_FOR_ALL_GROUPS = (test_groups.test_groups_are_used_in_different_orders,)
# It makes a gloo group beside each tutti group, with its own descriptors and threads.
TWO_GROUPS_EACH = (test_groups.test_groups_share_connections_and_threads,)
MODULES = (test_collectives, test_transfers, test_layouts, test_groups)


def suite() -> Iterator[object]:
    """The tests of these modules, each once: with the last of its parameters."""
    for module in MODULES:
        for name, test in inspect.getmembers(module, inspect.isfunction):
            wanted = inspect.signature(test).parameters
            if not name.startswith("test_") or "monkeypatch" in wanted:
                continue
            if test in ONE_ORDER_FOR_ALL_GROUPS + TWO_GROUPS_EACH:
                continue
            marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
            arguments = {mark.args[0]: mark.args[1][-1] for mark in marks}
            if set(arguments) == set(wanted):
                yield pytest.param(test, arguments, id=name)


@pytest.fixture
def detail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")


@pytest.mark.parametrize("test, arguments", list(suite()))
def test_the_suite_with_the_wrapper(detail: None, test: Callable[..., None], arguments: dict) -> None:
    test(**arguments)


def test_what_the_module_offers_finds_the_backend_behind_the_wrapper(detail: None) -> None:
    def body(rank: int, size: int) -> None:
        wrapped = dist.group.WORLD._get_backend(torch.device("cpu"))
        assert not isinstance(wrapped, tutti_torch.ProcessGroupTutti), "the wrapper is missing"
        tutti_torch.monitored_barrier()
        tutti_torch.monitored_barrier(dist.new_group([0, 1]))
        assert "tutti" in str(tutti_torch.flight_record()["comm_lib_version"])
        with pytest.raises(ValueError, match="the group's backend is gloo: give a group whose backend is tutti"):
            tutti_torch.monitored_barrier(dist.new_group(backend="gloo"))

    ranks.run(2, body)


def test_the_wrapper_tells_of_a_mismatch(detail: None) -> None:
    def body(rank: int, size: int) -> None:
        with pytest.raises(RuntimeError, match="Detected mismatch between collectives on ranks"):
            dist.all_reduce(torch.ones(4 + rank))

    ranks.run(2, body)
