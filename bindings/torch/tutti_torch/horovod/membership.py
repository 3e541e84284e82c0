"""Which processes are the ranks of an elastic job.

Workers take tickets 1, 2, ... from a store that outlives all of them. When the ranks of a job change, the job makes a new
process group: a new generation. The workers with the lowest tickets are the first generation. For each later generation,
rank 0 invites the workers that have taken tickets since, and gives a place to each worker that answers.
"""

import dataclasses
import datetime
import json

import torch.distributed as dist

# For a worker that has been invited. It may have died since it took its ticket.
_ANSWER = datetime.timedelta(seconds=5)


@dataclasses.dataclass
class Place:
    generation: int
    rank: int
    size: int
    # The highest ticket that has been invited.
    invited: int


def open_store(name: str) -> dist.Store:
    """HOST:PORT of a TCPStore that runs elsewhere, or the path of a file."""
    host, colon, port = name.rpartition(":")
    if colon and port.isdigit():
        return dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False)
    return dist.FileStore(name, -1)


class Membership:
    def __init__(self, name: str, ranks: int, timeout: datetime.timedelta) -> None:
        """Waits for a place: one of the first ``ranks``, or one that is free later."""
        if ranks < 1:
            raise ValueError(f"init(store=...) needs ranks, the number of workers that begin: {ranks} given")
        self.store = open_store(name)
        self.timeout = timeout
        ticket = self.store.add("tickets", 1)
        if ticket == ranks:
            for one in range(1, ranks + 1):
                self._give(one, Place(1, one - 1, ranks, ranks))
        if ticket > ranks:
            self.store.set(f"waits {ticket}", "")
            self._wait(f"invitation {ticket}")
            self.store.set(f"answer {ticket}", "")
        self.place = Place(**json.loads(self._wait(f"place {ticket}")))

    def group_store(self) -> dist.Store:
        """For the process group of this generation."""
        return dist.PrefixStore(f"generation {self.place.generation}", self.store)

    def workers_wait(self) -> bool:
        return self.store.check([f"waits {self.place.invited + 1}"])

    def renew(self, living: list[int]) -> None:
        """The next generation: the ranks of this one that live, in their order, and the workers that wait."""
        rank = living.index(self.place.rank)
        generation = self.place.generation + 1
        if rank == 0:
            invited = self.store.add("tickets", 0)
            new = self._invite(range(self.place.invited + 1, invited + 1))
            size = len(living) + len(new)
            for number, ticket in enumerate(new):
                self._give(ticket, Place(generation, len(living) + number, size, invited))
            self.store.set(f"members {generation}", json.dumps([size, invited]))
        size, invited = json.loads(self._wait(f"members {generation}"))
        self.place = Place(generation, rank, size, invited)

    def _invite(self, tickets: range) -> list[int]:
        """Those that answer."""
        for ticket in tickets:
            self.store.set(f"invitation {ticket}", "")
        answered = []
        for ticket in tickets:
            try:
                self.store.wait([f"answer {ticket}"], _ANSWER)
            except RuntimeError:  # no answer: of a TCPStore it is a DistStoreError
                continue
            answered.append(ticket)
        return answered

    def _give(self, ticket: int, place: Place) -> None:
        self.store.set(f"place {ticket}", json.dumps(dataclasses.asdict(place)))

    def _wait(self, key: str) -> bytes:
        self.store.wait([key], self.timeout)
        return self.store.get(key)
