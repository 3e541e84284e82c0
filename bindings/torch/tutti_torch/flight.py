"""The flight record: what this process's groups have called lately, as it is, and as torch's analyser reads it.

``torchfrtrace`` compares the entries of all ranks. What it takes for equal is narrower than what tutti does:

- It knows the names of operations that NCCL's backend uses.
- All ranks of a group have to call every operation. So each direction between two ranks is a separate group here,
  whose operations are the messages.
- A list of tensors counts as one tensor. If the tensors of a list differ in size, both sides of the entry hold all of
  them, as all ranks know them.
- The sizes of a gather or scatter may differ between ranks, which the analyser takes for an error. tutti has compared
  them when the operation is complete: the entry then holds none.
- A failed operation is one that has not completed.
"""

import math
from typing import Any

Entry = dict[str, Any]
Shape = list[int]

# Under other names, or none, in torch's analyser.
_RENAMED = {"barrier": "all_reduce_barrier", "all_reduce_sparse": "all_reduce"}
# Those that NCCL's backend calls for several tensors at once have names of their own.
_COALESCED = {"all_reduce": "allreduce_coalesced"}
_NOT_COMPARED = {"gather", "scatter", "all_to_all"}
_OF_ANALYSER_ALONE = ("type", "group_ranks", "from_to")


def for_analyser(record: dict[str, Any]) -> dict[str, Any]:
    """What ``tutti_torch.flight_record()`` returns, as ``torchfrtrace`` reads it."""
    groups = {}
    entries = []
    last_ranks = {entry["process_group"][0]: entry["group_ranks"] for entry in record["entries"]}
    for entry in record["entries"]:
        own = dict(entry)
        name, description, ranks = _group_of(entry)
        # A group of an earlier job of this process: one name stands for one group in a record.
        if entry["group_ranks"] != last_ranks[entry["process_group"][0]]:
            name += " of " + ",".join(map(str, entry["group_ranks"]))
        groups[name] = {"name": name, "desc": description, "ranks": str(ranks)}
        own["process_group"] = (name, description)
        operation = _message(own) if own["is_p2p"] else _collective(own)
        own["profiling_name"] = f"nccl:{operation}"
        if own["state"] == "failed":
            own["state"] = "started"
            own["time_discovered_completed_ns"] = None
        for key in _OF_ANALYSER_ALONE:
            del own[key]
        entries.append(own)
    unused = {name: group for name, group in record["pg_config"].items() if name not in last_ranks}
    return {**record, "pg_config": {**unused, **groups}, "pg_status": status(record["entries"]), "entries": entries}


def status(entries: list[Entry]) -> dict[str, dict[str, int]]:
    """How far the collectives of each group are, by ``pg_id``; -1: none."""
    groups: dict[str, dict[str, int]] = {}
    for entry in entries:
        last = {"last_enqueued_collective": -1, "last_started_collective": -1, "last_completed_collective": -1}
        last = groups.setdefault(str(entry["pg_id"]), last)
        if entry["is_p2p"]:
            continue
        number = entry["collective_seq_id"]
        last["last_enqueued_collective"] = number
        if entry["time_discovered_started_ns"] is not None:
            last["last_started_collective"] = number
        if entry["state"] == "completed":
            last["last_completed_collective"] = number
    return groups


def _group_of(entry: Entry) -> tuple[str, str, list[int]]:
    name, description = entry["process_group"]
    ranks = entry["group_ranks"]
    if not entry["is_p2p"]:
        return name, description, sorted(ranks)
    source, target = (ranks[rank] for rank in entry["from_to"])
    if description != "undefined":  # torch's word for none
        description = f"{description}: {source} to {target}"
    return f"{name}:{source}->{target}", description, sorted([source, target])


def _message(entry: Entry) -> str:
    entry["collective_seq_id"] = entry["p2p_seq_id"]
    entry["input_sizes"] = [[math.prod(shape)] for shape in entry["input_sizes"]]
    entry["output_sizes"] = [[math.prod(shape)] for shape in entry["output_sizes"]]
    source, target = (entry["group_ranks"][rank] for rank in entry["from_to"])
    # By their positions in the group of the two.
    source_at, target_at = int(source > target), int(source < target)
    if entry["profiling_name"].endswith("send"):
        return f"send {source_at}->{target_at}"
    return f"recv {target_at}<-{source_at}"


def _collective(entry: Entry) -> str:
    name = entry["profiling_name"].removeprefix("tutti:")
    name = _RENAMED.get(name, name)
    calls = max(1, min(len(entry["input_sizes"]), len(entry["output_sizes"])))
    if name == "all_gather":
        return _gathering(entry, name, "output_sizes", "_all_gather_base", "all_gather_into_tensor_coalesced")
    if name == "reduce_scatter":
        return _gathering(entry, name, "input_sizes", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced")
    if entry["type"] == "COALESCED" and name in _NOT_COMPARED:
        return "coalesced"
    if name in _NOT_COMPARED:
        for key in ("input_sizes", "output_sizes"):
            entry[key] = [_as_one(entry[key])] if entry[key] else []
        compared = {"gather": "input_sizes", "scatter": "output_sizes"}.get(name)
        if compared and entry["state"] == "completed":
            entry[compared] = [[]]
    return _COALESCED.get(name, name) if calls > 1 else name


def _gathering(entry: Entry, name: str, which: str, of_one: str, of_several: str) -> str:
    """all_gather and reduce_scatter: ``which`` holds the larger side, a tensor for each call or a list of blocks."""
    ranks = len(entry["group_ranks"])
    other = "input_sizes" if which == "output_sizes" else "output_sizes"
    calls = len(entry[other])
    blocks = entry[which]
    if entry["type"] in ("_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE"):
        return of_one
    if len(blocks) != calls * ranks or (entry["type"] == "COALESCED" and ranks == 1):
        return of_several
    lists = [blocks[at : at + ranks] for at in range(0, len(blocks), ranks)]
    if all(block == one[0] for one in lists for block in one):
        entry[which] = [[ranks, *one[0]] for one in lists]
        return name
    entry[other] = list(blocks)
    return name + "_v"


def _as_one(shapes: list[Shape]) -> Shape:
    if len(shapes) == 1:
        return shapes[0]
    if all(shape == shapes[0] for shape in shapes):
        return [len(shapes), *shapes[0]]
    return [sum(map(math.prod, shapes))]
