"""torchrun's agents, each of a node, of which one dies and comes back."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

PROGRAM = pathlib.Path(__file__).parents[3] / "examples" / "torch" / "nodes.py"
LIMIT_S = 300


class Node:
    """An agent with one rank."""

    def __init__(self, name: str, folder: pathlib.Path) -> None:
        self.output = folder / name
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:3", "--nproc-per-node=1"]
        command += ["--max-restarts=10", "--monitor-interval=0.1", "--rdzv-backend=c10d"]
        # The file stands for a server that does not run on one of the nodes. A dead agent is missed after ten seconds.
        command += [f"--rdzv-endpoint={folder / 'rendezvous'}", f"--rdzv-id={folder.name}", "--local-addr=127.0.0.1"]
        command += ["--rdzv-conf=store_type=file,last_call_timeout=10,keep_alive_interval=1,keep_alive_max_attempt=10"]
        command += [str(PROGRAM), f"--checkpoint={folder / 'state.pt'}", f"--until={folder / 'end'}"]
        with self.output.open("w") as output:
            # Without this, ranks of torch 2.13 that have never been rank 0 get the store of the first one, which has died.
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
            self.agent = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )

    def begins(self) -> list[tuple[int, int, int, int]]:
        """Of each start of its rank: the rank, the number of ranks, the first step, the process."""
        found = re.findall(r"rank (\d+) of (\d+) begins with step (\d+), process (\d+)\n", self.output.read_text())
        return [tuple(map(int, one)) for one in found]

    def wait_for(self, ranks: int, starts: int) -> int:
        """Until its rank has started more often than `starts`, and is one of `ranks` ranks; the first step."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            begins = self.begins()
            if len(begins) > starts and begins[-1][1] == ranks:
                return begins[-1][2]
            time.sleep(0.05)
        raise AssertionError(f"no start as one of {ranks} ranks after the first {starts}: {self.output.read_text()}")

    def kill(self) -> None:
        """The agent and its rank, as if the node had lost power."""
        for process in [self.agent.pid, *(one[3] for one in self.begins()[-1:])]:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.agent.wait()


def test_a_node_dies_and_comes_back(tmp_path: pathlib.Path) -> None:
    nodes = [Node(f"node{number}", tmp_path) for number in range(3)]
    try:
        for node in nodes:
            node.wait_for(3, 0)
        while not (tmp_path / "state.pt").exists():
            time.sleep(0.05)
        victim = next(node for node in nodes if node.begins()[-1][0] == 0)  # which hosts the store of the group
        others = [node for node in nodes if node is not victim]
        starts = [len(node.begins()) for node in others]
        victim.kill()
        smaller = [node.wait_for(2, number) for node, number in zip(others, starts)]
        assert smaller[0] == smaller[1] >= 10
        starts = [len(node.begins()) for node in others]
        nodes[nodes.index(victim)] = back = Node("back", tmp_path)
        larger = [node.wait_for(3, number) for node, number in zip([*others, back], [*starts, 0])]
        assert larger[0] == larger[1] == larger[2] >= smaller[0]
        (tmp_path / "end").touch()
        for node in nodes:
            assert node.agent.wait(LIMIT_S) == 0, node.output.read_text()
            assert "from the solution: right" in node.output.read_text()
    finally:
        for node in nodes:
            node.kill()
