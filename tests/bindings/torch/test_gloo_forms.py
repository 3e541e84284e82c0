"""Calls of programs and tests written for gloo: lists of several tensors, a tensor given twice, checks, error words."""

import pytest
import torch
import torch.distributed as dist

import ranks
from test_collectives import check, of


def test_a_tensor_that_is_given_twice_in_a_coalesced_call() -> None:
    def body(rank: int, size: int) -> None:
        tensor, other = of(rank, 1000), of(rank + 1, 50)
        dist.all_reduce_coalesced([tensor, other, tensor])
        check(tensor, sum(of(o, 1000) for o in range(size)))
        check(other, sum(of(o + 1, 50) for o in range(size)))
        # Only on one rank, and parts of each other.
        whole = of(rank, 60)
        parts = [whole, whole[10:], whole[:50].view(5, 10).t()] if rank == 0 else [
            whole,
            whole[10:].clone(),
            whole[:50].view(5, 10).t().clone(),
        ]
        work = dist.all_reduce_coalesced(parts, async_op=True)
        work.wait()
        check(whole, sum(of(o, 60) for o in range(size)))
        check(parts[1].contiguous(), sum(of(o, 60) for o in range(size))[10:])
        with dist._coalescing_manager():
            for _ in range(2):
                dist.all_reduce(whole)
        check(whole, size * sum(of(o, 60) for o in range(size)))

    ranks.run(3, body)


REDUCED = {
    dist.ReduceOp.SUM: lambda all_of_them: all_of_them.sum(0),
    dist.ReduceOp.PRODUCT: lambda all_of_them: all_of_them.prod(0),
    dist.ReduceOp.MIN: lambda all_of_them: all_of_them.amin(0),
    dist.ReduceOp.MAX: lambda all_of_them: all_of_them.amax(0),
}


def test_several_tensors_of_a_rank_in_an_all_reduce() -> None:
    def body(rank: int, size: int) -> None:
        group = dist.group.WORLD
        for op, expected in REDUCED.items():
            options = dist.AllreduceOptions()
            options.reduceOp = op
            tensors = [of(rank, 12).view(3, 4), of(rank + 7, 12).view(4, 3).t()]
            future = group.allreduce(tensors, options).get_future()
            every = torch.stack([t for o in range(size) for t in (of(o, 12), of(o + 7, 12).view(4, 3).t().reshape(-1))])
            for tensor in (*tensors, *future.wait()):
                check(tensor.contiguous().view(-1), expected(every), str(op))
        options.reduceOp = dist.ReduceOp.AVG
        with pytest.raises(RuntimeError, match="one tensor of each rank"):
            group.allreduce([torch.ones(3), torch.ones(3)], options)
        sparse = [torch.eye(3).to_sparse() * (rank + 1), torch.ones(3, 3).to_sparse()]
        group.allreduce(sparse).wait()
        for tensor in sparse:
            check(tensor.to_dense(), torch.eye(3) * sum(range(1, size + 1)) + size)

    ranks.run(3, body)


def two_of(rank: int) -> list[torch.Tensor]:
    return [of(2 * rank, 12).view(3, 4), of(2 * rank + 1, 12).view(4, 3).t()]


def test_several_tensors_of_a_rank_in_a_broadcast() -> None:
    def body(rank: int, size: int) -> None:
        for root in range(size):
            for root_tensor in range(2):
                options = dist.BroadcastOptions()
                options.rootRank, options.rootTensor = root, root_tensor
                tensors = two_of(rank)
                dist.group.WORLD.broadcast(tensors, options).wait()
                for tensor in tensors:
                    check(tensor.contiguous().view(-1), two_of(root)[root_tensor].reshape(-1))

    ranks.run(3, body)


def test_several_tensors_of_a_rank_in_an_all_gather() -> None:
    def body(rank: int, size: int) -> None:
        for count in (1, 2, 3):
            inputs = [of(count * rank + i, 8).view(2, 4) for i in range(count)]
            outputs = [[torch.zeros(4, 2).t() for _ in range(count * size)] for _ in range(count)]
            future = dist.group.WORLD.allgather(outputs, inputs).get_future()
            given = future.wait() if count > 1 else [future.wait()]
            assert [len(part) for part in given] == [count * size] * count
            for lists in (outputs, given):
                for part in lists:
                    for number, tensor in enumerate(part):
                        check(tensor.contiguous().view(-1), of(number, 8))

    ranks.run(3, body)


def test_what_is_refused_as_gloo_refuses_it() -> None:
    def body(rank: int, size: int) -> None:
        group = dist.group.WORLD._get_backend(torch.device("cpu"))
        one, double, two = torch.zeros(1), torch.zeros(1, dtype=torch.float64), torch.zeros(2)
        sparse = torch.sparse_coo_tensor([[0]], [1.0], size=(1,))

        def refused(what: str, call) -> None:
            with pytest.raises(RuntimeError, match=what):
                call()

        def broadcast(tensors, root: int = 0, root_tensor: int = 0):
            options = dist.BroadcastOptions()
            options.rootRank, options.rootTensor = root, root_tensor
            return lambda: group.broadcast(tensors, options)

        def reduce(tensors, root: int = 0, root_tensor: int = 0):
            options = dist.ReduceOptions()
            options.rootRank, options.rootTensor = root, root_tensor
            return lambda: group.reduce(tensors, options)

        for call in (broadcast, reduce):
            for root in (-1, size):
                refused("invalid root rank", call([one], root))
            for root_tensor in (-1, 1):
                refused("invalid root tensor", call([one], 0, root_tensor))
        refused("invalid tensor type", broadcast([one, double]))
        refused("invalid tensor size", broadcast([one, two]))
        refused("requires a single-element tensor list", reduce([one, one.clone()]))
        refused("invalid tensor type", lambda: group.allreduce([one, double]))
        refused("invalid tensor size", lambda: group.allreduce([one, two]))
        refused("invalid tensor layout", lambda: group.allreduce([one, sparse]))
        # torch combines the tensors of one rank, and has no such operation for these types.
        for dtype, op in ((torch.float8_e4m3fn, dist.ReduceOp.SUM), (torch.uint16, dist.ReduceOp.SUM), (torch.uint32, dist.ReduceOp.MAX)):
            options = dist.AllreduceOptions()
            options.reduceOp = op
            parts = [torch.ones(1).to(dtype) for _ in range(2)]
            refused("torch cannot combine several tensors of type", lambda: group.allreduce(parts, options))  # noqa: B023
        refused("tensors must all have the same type", lambda: group.allreduce_coalesced([one, double]))
        refused("invalid tensor layout at index 1", lambda: group.allreduce_coalesced([one, sparse]))
        refused("unsupported layout", lambda: group.allreduce_coalesced([sparse, sparse.clone()]))
        refused("lists to have the same length", lambda: group.allgather([[one] * size] * 2, [one]))
        refused("invalid output tensor list", lambda: group.allgather([[one] * (size - 1)], [one]))
        outputs = [[torch.zeros(1)] for _ in range(size)]
        outputs[0] = [torch.zeros(0)]
        refused("invalid size of output tensor at index 0", lambda: dist.all_gather_coalesced(outputs, [one]))
        outputs.append([torch.zeros(1)])
        refused("output lists should be equal to world size", lambda: dist.all_gather_coalesced(outputs, [one]))
        # The list has both faults on ranks 0 and 2, and on rank 1 its own output has another size than the input.
        mixed = [torch.zeros(1), two, torch.zeros(1)]
        mixed[2] = mixed[0]
        refused("invalid tensor size", lambda: group.allgather([mixed], [one]))
        refused("invalid root tensor", broadcast([]))
        refused("requires non-empty tensor list", lambda: group.allreduce([]))

        def at_root(options, root: int = 0):
            options.rootRank = root
            return options

        gather, scatter = at_root(dist.GatherOptions(), rank), at_root(dist.ScatterOptions(), rank)
        many = [torch.zeros(1) for _ in range(size)]
        for tensors in ([], [one, two]):
            refused("requires a single-element input tensor list", lambda: group.gather([many], tensors, gather))
            refused("requires a single-element output tensor list", lambda: group.scatter(tensors, [many], scatter))
        short = many[1:]
        refused("Incorrect output list size 2. Output list size should be 3", lambda: group.gather([short], [one], gather))
        refused("Incorrect input list size 2. Input list size should be 3", lambda: group.scatter([one], [short], scatter))
        dist.all_reduce(one)  # the group is still usable

    ranks.run(3, body)


def test_timeouts_in_the_words_of_gloo() -> None:
    def body(rank: int, size: int) -> None:
        store = dist.distributed_c10d._get_default_store()
        if rank == 1:
            store.wait(["raised"])
            return
        with pytest.raises(dist.DistBackendError, match="all_reduce: Timed out waiting: .*rank 1"):
            dist.all_reduce(torch.ones(10))
        store.set("raised", "")

    ranks.run(2, body, timeout_s=5)
