"""The parameters of operations in profiles and execution traces: those that torch's NCCL backend gives."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import ranks
import torch
import torch.distributed as dist
import torch.profiler

import tutti_torch
from test_devices import device_module, each, on  # noqa: F401  two fixtures

EVENT = "record_param_comms"


def told(folder: pathlib.Path, rank: int, calls: Callable[[], None]) -> list[dict[str, Any]]:
    """The arguments of the events of the operations in `calls`, in their order."""
    path = folder / f"trace_{rank}.json"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        calls()
    profile.export_chrome_trace(str(path))
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("name") == EVENT]
    return [event["args"] for event in sorted(events, key=lambda event: event["ts"])]


def check(events: list[dict[str, Any]], expected: list[tuple[str, int, int, str]]) -> None:
    """expected: name, elements in and out, type of elements."""
    keys = ("Collective name", "In msg nelems", "Out msg nelems", "dtype")
    assert [tuple(event[key] for key in keys) for event in events] == expected


def check_group(events: list[dict[str, Any]], name: str, description: str, members: list[int]) -> None:
    for event in events:
        assert event["Group size"] == len(members), event
        assert (event["Process Group Name"], event["Process Group Description"]) == (name, description), event
        assert json.loads(event["Process Group Ranks"]) == members, event


def test_every_operation_tells_its_parameters(tmp_path: pathlib.Path) -> None:
    def body(rank: int, size: int) -> None:
        half = torch.ones(6, dtype=torch.float64)
        sent = [1, 3] if rank == 0 else [2, 4]
        received = [1, 2] if rank == 0 else [3, 4]

        def calls() -> None:
            dist.all_reduce(torch.ones(3, 4))
            dist.all_gather_into_tensor(torch.ones(5 * size, dtype=torch.int32), torch.ones(5, dtype=torch.int32))
            dist.reduce_scatter_tensor(half, torch.ones(6 * size, dtype=torch.float64))
            dist.broadcast(torch.ones(7, dtype=torch.bfloat16), 1)
            dist.all_to_all_single(torch.empty(2 * sum(received)).view(-1, 2), torch.ones(sum(sent), 2), received, sent)
            dist.all_to_all_single(torch.empty(4), torch.ones(4))
            if rank == 0:
                dist.send(torch.ones(8), 1)
                dist.recv(torch.ones(9), 1, tag=3)
            else:
                dist.recv(torch.ones(8), 0)
                dist.send(torch.ones(9), 0, tag=3)
            dist.all_reduce(torch.ones(2), async_op=True).wait()
            dist.barrier()

        events = told(tmp_path, rank, calls)
        expected = [
            ("allreduce", 12, 12, "Float"),
            ("_allgather_base", 5, 10, "Int"),
            ("_reduce_scatter_base", 12, 6, "Double"),
            ("broadcast", 7, 7, "BFloat16"),
            ("all_to_allv", 2 * sum(sent), 2 * sum(received), "Float"),
            ("all_to_all", 4, 4, "Float"),
            ("send" if rank == 0 else "recv", 8, 8, "Float"),
            ("recv" if rank == 0 else "send", 9, 9, "Float"),
            ("allreduce", 2, 2, "Float"),
            ("barrier", 0, 0, "Byte"),
        ]
        check(events, expected)
        check_group(events, "0", "default_pg", [0, 1])
        assert (json.loads(events[4]["In split size"]), json.loads(events[4]["Out split size"])) == (sent, received)
        assert json.loads(events[0]["In split size"]) == []
        assert [event["Rank"] for event in events[2:5]] == [rank, 1, rank]  # a broadcast has its root
        peer = 1 - rank
        assert [(event.get("Src Rank"), event.get("Dst Rank")) for event in events[6:8]] == (
            [(None, peer), (peer, None)] if rank == 0 else [(peer, None), (None, peer)]
        )
        # The numbers in the flight record.
        numbers = {"collective": [], "message": []}
        for entry in tutti_torch.flight_record()["entries"]:
            kind = "message" if entry["is_p2p"] else "collective"
            numbers[kind].append(entry["p2p_seq_id" if entry["is_p2p"] else "collective_seq_id"])
        assert [event["Seq"] for event in events[:6] + events[8:]] == numbers["collective"]
        assert [event["Seq"] for event in events[6:8]] == numbers["message"]

    ranks.run(2, body)


def test_lists_of_tensors_tell_their_sums(tmp_path: pathlib.Path) -> None:
    def body(rank: int, size: int) -> None:
        def calls() -> None:
            dist.all_gather([torch.ones(r + 1) for r in range(size)], torch.ones(rank + 1))
            dist.reduce_scatter(torch.ones(rank + 1), [torch.ones(r + 1) for r in range(size)])
            dist.reduce(torch.ones(4), 1)
            dist.gather(torch.ones(3), [torch.ones(3) for _ in range(size)] if rank == 1 else None, dst=1)
            dist.scatter(torch.ones(3), [torch.ones(3) for _ in range(size)] if rank == 1 else None, src=1)
            dist.all_to_all([torch.empty(rank + 1) for _ in range(size)], [torch.ones(r + 1) for r in range(size)])
            dist.all_reduce(torch.eye(3).to_sparse())

        events = told(tmp_path, rank, calls)
        expected = [
            ("all_gather", rank + 1, 3, "Float"),
            ("reduce_scatter", 3, rank + 1, "Float"),
            ("reduce", 4, 4, "Float"),
            ("gather", 3, 6, "Float"),
            ("scatter", 6, 3, "Float"),
            ("all_to_all", 3, size * (rank + 1), "Float"),
            ("allreduce_sparse", 9, 9, "Float"),
        ]
        check(events, expected)
        check_group(events, "0", "default_pg", [0, 1])
        splits = [json.loads(events[5][key]) for key in ("In split size", "Out split size")]
        assert splits == [[1, 2], [rank + 1] * size]

    ranks.run(2, body)


def test_coalesced_operations_tell_their_parameters(tmp_path: pathlib.Path) -> None:
    def body(rank: int, size: int) -> None:
        peer = 1 - rank

        def calls() -> None:
            with dist._coalescing_manager():
                dist.all_gather_into_tensor(torch.ones(4 * size), torch.ones(4))
                dist.all_gather_into_tensor(torch.ones(6 * size), torch.ones(6))
            with dist._coalescing_manager():
                for elements in (2, 3):
                    dist.all_reduce(torch.ones(elements))
            with dist._coalescing_manager():
                for elements in (5, 6):
                    dist.broadcast(torch.ones(elements), 0)
            messages = [dist.P2POp(dist.isend, torch.ones(7), peer), dist.P2POp(dist.irecv, torch.ones(7), peer)]
            for work in dist.batch_isend_irecv(messages):
                work.wait()

        events = told(tmp_path, rank, calls)
        expected = [
            ("allgather_into_tensor_coalesced", 10, 20, "Float"),
            ("allreduce_coalesced", 5, 5, "Float"),
            ("broadcast", 5, 5, "Float"),
            ("broadcast", 6, 6, "Float"),
            ("send", 7, 7, "Float"),
            ("recv", 7, 7, "Float"),
        ]
        check(events, expected)
        assert (events[4]["Dst Rank"], events[5]["Src Rank"]) == (peer, peer)

    ranks.run(2, body)


def test_groups_tell_their_ranks(tmp_path: pathlib.Path) -> None:
    def body(rank: int, size: int) -> None:
        even = dist.new_group([0, 2], group_desc="even")
        alone = dist.new_group([1])
        uneven = dist.new_group([0, 1, 3])
        own = {0: even, 1: alone, 2: even}.get(rank)

        def calls() -> None:
            if own is not None:
                dist.all_reduce(torch.ones(3), group=own)
            if rank != 2:
                dist.all_reduce(torch.ones(4), group=uneven)
            dist.barrier()

        *own_events, last = told(tmp_path, rank, calls)
        check_group([last], "0", "default_pg", list(range(size)))
        if rank == 1:
            check_group(own_events[:1], alone.group_name, alone.group_desc, [1])
        elif own is not None:
            check_group(own_events[:1], even.group_name, "even", [0, 2])
        if rank != 2:
            # torch's event has ranks at equal distances only.
            assert own_events[-1]["Group size"] == 3
            assert own_events[-1]["Process Group Name"] == uneven.group_name

    ranks.run(4, body)


def test_operations_on_devices_tell_their_parameters(
    tmp_path: pathlib.Path,
    each: Callable[..., list[Any]],  # noqa: F811
) -> None:
    def body(rank: int, size: int, standin: Any) -> None:
        peer = 1 - rank
        sent, received = on(rank, [1.0] * 7), on(rank, [0.0] * 7)

        def calls() -> None:
            dist.all_reduce(on(rank, [1.0] * 12))
            messages = [dist.P2POp(dist.isend, sent, peer), dist.P2POp(dist.irecv, received, peer)]
            for work in dist.batch_isend_irecv(messages):
                work.wait()

        events = told(tmp_path, rank, calls)
        check(events, [("allreduce", 12, 12, "Float"), ("send", 7, 7, "Float"), ("recv", 7, 7, "Float")])
        check_group(events, "0", "default_pg", [0, 1])
        assert (events[1]["Dst Rank"], events[2]["Src Rank"]) == (peer, peer)

    each(2, body)


def test_execution_traces_have_the_tensors(tmp_path: pathlib.Path) -> None:
    """The layout that replaying programs expect: tensors, numbers, group and so on, without tensors for a barrier."""

    def body(rank: int, size: int) -> None:
        path = tmp_path / f"execution_{rank}.json"
        observer = torch.profiler.ExecutionTraceObserver()
        observer.register_callback(str(path))
        observer.start()
        dist.all_reduce(torch.ones(3, 4))
        dist.barrier()
        observer.stop()
        observer.unregister_callback()
        nodes = [node for node in json.loads(path.read_text())["nodes"] if node["name"] == EVENT]
        reduced, barrier = sorted(nodes, key=lambda node: node["id"])
        assert reduced["inputs"]["shapes"][0] == reduced["outputs"]["shapes"][0] == [[3, 4]]
        assert (len(reduced["inputs"]["values"]), len(barrier["inputs"]["values"])) == (11, 10)
        assert reduced["inputs"]["values"][2:5] == [["0", "default_pg"], rank, "allreduce"]
        assert barrier["inputs"]["values"][1:4] == [["0", "default_pg"], rank, "barrier"]
        attributes = {one["name"]: one["value"] for one in reduced["attrs"]}
        assert (attributes["collective_name"], attributes["in_msg_nelems"]) == ("allreduce", 12)

    ranks.run(2, body)
