"""Flight records, read by the analyser that PyTorch installs."""

import contextlib
import pathlib
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import ranks
import torch
import torch.distributed as dist

import tutti_torch

ANALYSER = pathlib.Path(sys.executable).with_name("torchfrtrace")


def blocks(size: int) -> list[torch.Tensor]:
    return [torch.ones(10) for _ in range(size)]


def rising(size: int) -> list[torch.Tensor]:
    return [torch.ones(one + 1) for one in range(size)]


def call_collectives(rank: int, size: int) -> None:
    own = torch.ones(10)
    whole = torch.ones(10 * size)
    dist.all_reduce(own)
    dist.broadcast(own, 0)
    dist.reduce(own, size - 1)
    dist.barrier()
    dist.all_gather(blocks(size), own)
    dist.gather(own, blocks(size) if rank == 0 else None)
    dist.scatter(own, blocks(size) if rank == 1 else None, src=1)
    dist.reduce_scatter(own, blocks(size))
    dist.all_to_all(blocks(size), blocks(size))
    dist.all_to_all_single(torch.empty(size), torch.ones(size))
    dist.all_gather_into_tensor(whole, own)
    dist.reduce_scatter_tensor(own, whole)
    dist.all_gather_object([None] * size, {"rank": rank})
    for shape in ((), (0,), (2, 0)):
        dist.all_reduce(torch.ones(shape))
        dist.all_gather([torch.ones(shape) for _ in range(size)], torch.ones(shape))


def call_with_sizes_of_ranks(rank: int, size: int) -> None:
    own = torch.ones(rank + 1)
    dist.all_gather(rising(size), own)
    dist.reduce_scatter(own, rising(size))
    dist.gather(own, rising(size) if rank == 0 else None)
    dist.scatter(own, rising(size) if rank == 0 else None)
    dist.all_to_all([torch.ones(rank + 1) for _ in range(size)], rising(size))
    sent = list(range(1, size + 1))
    dist.all_to_all_single(torch.empty(size * (rank + 1)), torch.ones(sum(sent)), [rank + 1] * size, sent)


def call_coalesced(rank: int, size: int) -> None:
    one, other = torch.ones(10), torch.ones(3, 2)
    with dist._coalescing_manager():
        dist.all_reduce(one)
        dist.all_reduce(other)
    with dist._coalescing_manager():
        dist.all_gather_into_tensor(torch.empty(10 * size), one)
        dist.all_gather_into_tensor(torch.empty(3 * size, 2), other)
    with dist._coalescing_manager():
        dist.reduce_scatter_tensor(one, torch.ones(10 * size))
        dist.reduce_scatter_tensor(other, torch.ones(3 * size, 2))
    for work in [dist.all_reduce(one, async_op=True) for _ in range(4)]:
        work.wait()


def send_around(rank: int, size: int) -> None:
    """Ranks exchange different numbers of messages, some of them beside each other."""
    own = torch.ones(10)
    for _ in range(3):
        if rank == 0:
            dist.send(own, size - 1)
            dist.recv(own, size - 1)
        elif rank == size - 1:
            dist.recv(own, 0)
            dist.send(own, 0)
    if rank == 1 and size > 2:
        dist.send(torch.ones(3, 2), size - 1)
    elif rank == size - 1 and size > 2:
        dist.recv(torch.ones(6), 1)
    operations = [
        dist.P2POp(dist.isend, own, (rank + 1) % size),
        dist.P2POp(dist.irecv, torch.empty(10), (rank - 1) % size),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()


def use_groups(rank: int, size: int) -> None:
    for members in ([0, 1], [0, size - 1], [size - 1]):
        group = dist.new_group(members)
        if rank not in members:
            continue
        dist.all_reduce(torch.ones(5), group=group)
        if members == [0, 1]:
            send = dist.isend(torch.ones(5), 1 - rank, group=group)
            dist.recv(torch.empty(5), 1 - rank, group=group)
            send.wait()
        dist.destroy_process_group(group)


def analyse(tmp_path: pathlib.Path, program: Callable[[int, int], Any], size: int) -> str:
    """What the analyser prints of the records of all ranks after the program."""

    def body(rank: int, size: int) -> None:
        program(rank, size)
        tutti_torch.dump_flight_record(str(tmp_path / f"rank_{rank}"))

    ranks.run(size, body)
    return read(tmp_path)


def read(folder: pathlib.Path) -> str:
    done = subprocess.run([ANALYSER, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


ACCUSATIONS = ("Culprit", "Not all ranks", "mismatch", "MISMATCH", "empty op list", "coalesced end", "cannot decide")


@pytest.mark.parametrize("size", [2, 3])
def test_correct_program_is_not_accused(tmp_path: pathlib.Path, size: int) -> None:
    def program(rank: int, size: int) -> None:
        call_collectives(rank, size)
        send_around(rank, size)
        call_with_sizes_of_ranks(rank, size)
        use_groups(rank, size)
        call_coalesced(rank, size)
        # Refused on all ranks: not an operation.
        with pytest.raises(RuntimeError):
            dist.broadcast(torch.ones(1), size)
        use_groups(rank, size)
        dist.all_reduce(torch.ones(2))

    told = analyse(tmp_path, program, size)
    assert not [word for word in ACCUSATIONS if word in told], told
    names = {entry["profiling_name"] for entry in pickle.loads((tmp_path / "rank_0").read_bytes())["entries"]}
    assert names >= {"nccl:all_gather_v", "nccl:reduce_scatter_v", "nccl:allreduce_coalesced", "nccl:send 0->1"}


def test_record_has_what_torch_writes(tmp_path: pathlib.Path) -> None:
    def program(rank: int, size: int) -> None:
        dist.all_gather([torch.ones(2, 5) for _ in range(size)], torch.ones(2, 5))
        dist.send(torch.ones(7), 1) if rank == 0 else dist.recv(torch.ones(7), 0)

    analyse(tmp_path, program, 2)
    record = pickle.loads((tmp_path / "rank_1").read_bytes())
    gathered, received = record["entries"]
    assert gathered["profiling_name"] == "nccl:all_gather"
    assert (gathered["input_sizes"], gathered["output_sizes"]) == ([[2, 5]], [[2, 2, 5]])
    assert gathered["process_group"] == ("0", "default_pg")
    assert received["profiling_name"] == "nccl:recv 1<-0"
    assert record["pg_status"]["0"]["last_completed_collective"] == 1
    fields = (
        "record_id pg_id process_group thread_name thread_id collective_seq_id p2p_seq_id op_id profiling_name "
        "time_created_ns duration_ms input_sizes input_dtypes output_sizes output_dtypes state "
        "time_discovered_started_ns time_discovered_completed_ns retired timeout_ms is_p2p frames"
    )
    assert set(gathered) == set(fields.split())


def of_one_rank(rank: int, size: int) -> None:
    if rank != 1:
        dist.all_reduce(torch.ones(10))


def of_two_kinds(rank: int, size: int) -> None:
    dist.broadcast(torch.ones(10), 0) if rank == 1 else dist.all_reduce(torch.ones(10))


def of_two_sizes(rank: int, size: int) -> None:
    dist.all_reduce(torch.ones(10 + (rank == 1)))


def send_alone(rank: int, size: int) -> None:
    if rank == 0:
        dist.send(torch.ones(4_000_000), 1)


def receive_alone(rank: int, size: int) -> None:
    if rank == 0:
        dist.recv(torch.ones(4), 1)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (of_one_rank, "missing ranks: {1}"),
        (of_two_kinds, "Culprit rank 1; Error type: COLLECTIVE_TYPE_MISMATCH"),
        (of_two_sizes, "Culprit rank 1; Error type: SIZE_OR_SYNTAX_MISMATCH"),
        (send_alone, "missing ranks: {1}"),
        (receive_alone, "missing ranks: {1}"),
    ],
)
def test_wrong_program_is_told_by_its_culprit(
    tmp_path: pathlib.Path, wrong: Callable[[int, int], Any], says: str
) -> None:
    def program(rank: int, size: int) -> None:
        call_collectives(rank, size)
        send_around(rank, size)
        with contextlib.suppress(dist.DistBackendError):
            wrong(rank, size)

    def body(rank: int, size: int) -> None:
        program(rank, size)
        tutti_torch.dump_flight_record(str(tmp_path / f"rank_{rank}"))

    ranks.run(3, body, timeout_s=5)
    told = read(tmp_path)
    assert says in told, told
    assert told.count("error msg") + told.count("Not all ranks") == 1, told


def test_failed_operation_writes_the_record(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank does not come in time; the analyser names it by what the others have written before their calls raised."""
    monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", str(tmp_path / "rank_"))

    def program(rank: int, size: int) -> list[str]:
        for _ in range(3):
            dist.all_reduce(torch.ones(10))
        dist.barrier()
        # Refused for its argument: not a failure.
        with pytest.raises(RuntimeError):
            dist.broadcast(torch.ones(1), size)
        assert not list(tmp_path.iterdir())
        dist.barrier()
        if rank == 1:
            # Its next call, another one, is refused after those of the others have failed.
            deadline = time.monotonic() + 100
            while len(list(tmp_path.glob("rank_?"))) < size - 1 and time.monotonic() < deadline:
                time.sleep(0.1)
        with pytest.raises(RuntimeError):
            dist.all_reduce(torch.ones(30 if rank == 1 else 20))
        return sorted(path.name for path in tmp_path.iterdir())

    seen = ranks.run(3, program, timeout_s=5)
    assert all(f"rank_{rank}" in names for rank, names in enumerate(seen)), seen
    records = [pickle.loads((tmp_path / f"rank_{rank}").read_bytes()) for rank in range(3)]
    for rank, record in enumerate(records):
        assert [entry["state"] for entry in record["entries"]][:3] == ["completed"] * 3
        assert record["entries"][-1]["state"] != "completed"
        assert record["entries"][-1]["input_sizes"] == [[30 if rank == 1 else 20]]
    assert "Culprit rank 1" in read(tmp_path)
