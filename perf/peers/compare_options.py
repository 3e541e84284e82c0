"""The command line of perf/compare. See there."""

import argparse
import os

REDUCING = {"all_reduce", "reduce_scatter", "reduce", "scan", "exscan"}
COLLECTIVES = ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "barrier", "gather", "scatter",
               "alltoall", "scan", "exscan"]
TRANSFERS = ["sendrecv", "ping_pong"]
ELEMENT_BYTES = 4  # of a float
VARYING = {"all_gather", "reduce_scatter", "gather", "scatter", "alltoall"}  # that have a form with varying counts
LIBRARIES = {"tutti", "open", "open5", "mpich", "mpich5", "impi", "oneccl", "gloo", "yardstick"}
# These MPI libraries, and tutti preloaded, which takes their collectives: not measured unless asked for.
PRELOADED = {"tutti_in_open", "tutti_in_mpich"}
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def parse_size(text):
    """'8', '4K', '64M', '1G' in bytes (powers of 1024)."""
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    digits = text if factor == 1 else text[:-1]
    if not digits.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not a size such as 8, 4K, 64M or 1G")
    return int(digits) * factor


def parse_sizes(text):
    return [parse_size(part) for part in text.split(",")]


def parse_collective(text):
    """As tutti's commands read it: case, "_" and "-" do not count. What has no such name stays, for the error."""
    def bare(name):
        return name.replace("_", "").replace("-", "").lower()

    names = {bare(name): name for name in COLLECTIVES + TRANSFERS} | {
        "bcast": "broadcast", "inclusivescan": "scan", "exclusivescan": "exscan", "reducescatterblock": "reduce_scatter"}
    return names.get(bare(text), text)


def parse_skew(text):
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number") from error


def parse_arguments(arguments, description):
    parser = argparse.ArgumentParser(
        prog="compare", description=description, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Ratios above 1 mean that tutti is faster. Exit status: 0 measured, 1 failed or wrong data, 2 usage.")
    parser.add_argument("-r", "--ranks", type=int, default=2, metavar="N", help="ranks per library (default 2)")
    parser.add_argument("-b", "--minbytes", type=parse_size, default=8, metavar="SIZE", help="smallest size (default 8)")
    parser.add_argument("-e", "--maxbytes", type=parse_size, default=32 << 20, metavar="SIZE",
                        help="largest size (default 32M)")
    parser.add_argument("-f", "--stepfactor", type=int, default=4, metavar="F",
                        help="factor between sizes (default 4)")
    parser.add_argument("--sizes", type=parse_sizes, metavar="A,B,...", help="these sizes instead of -b, -e, -f")
    parser.add_argument("--rounds", type=int, default=11, metavar="N", help="rounds per size (default 11)")
    parser.add_argument("--collective", type=parse_collective, choices=COLLECTIVES + TRANSFERS, default="all_reduce",
                        help="default all_reduce; sendrecv: each rank sends to the next while it receives from the one "
                             "before; ping_pong: one-way time of sends and receives between 2 ranks")
    parser.add_argument("--skew", type=parse_skew, metavar="F",
                        help="blocks of different counts, the largest of F times the mean, as the option of the perf "
                             "programs: of all_gather, reduce_scatter, gather, scatter and alltoall")
    parser.add_argument("--memory", choices=["malloc", "tutti", "both"], default="malloc",
                        help="tutti's buffers: malloc, tuttiMemAlloc, or one column for each (default malloc)")
    parser.add_argument("--transport", choices=["shm", "tcp"], default="shm",
                        help="shared memory, or TCP on the loopback interface for every library (default shm; Gloo "
                             "has only TCP)")
    parser.add_argument("--libraries", type=lambda text: text.split(","), metavar="A,B,...",
                        help="only these of tutti, open (Open MPI), mpich, gloo, yardstick, and of what "
                             "tools/install_peers has installed: open5, mpich5, impi, oneccl. On request alone: "
                             "tutti_in_open, tutti_in_mpich, which are these MPI libraries with tutti preloaded")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), metavar="DIR",
                        help="Meson build folder (default: build beside the sources)")
    parser.add_argument("-J", "--json", metavar="FILE", help="write all results as one JSON object")
    parser.add_argument("--plot", metavar="FILE",
                        help="draw time and bus bandwidth against size: FILE.svg, .png or .pdf (needs matplotlib)")
    parser.add_argument("--version", action="store_true", help="print tutti's version and exit")
    options = parser.parse_args(arguments)
    if options.ranks < 2 or options.rounds < 1 or options.stepfactor < 2 or options.minbytes < 1:
        parser.error("--ranks and --stepfactor must be at least 2, --rounds and --minbytes at least 1")
    if options.collective == "ping_pong" and options.ranks != 2:
        parser.error("--collective ping_pong is between 2 ranks")
    if options.skew is not None:
        if options.collective not in VARYING:
            parser.error(f"--skew: {options.collective} has no blocks; {', '.join(sorted(VARYING))} have")
        if not 1 <= options.skew <= options.ranks:
            parser.error(f"--skew: of {options.ranks} blocks the largest is 1 to {options.ranks} times the mean")
        options.collective += "_v"
    if options.libraries and not set(options.libraries) <= LIBRARIES | PRELOADED:
        parser.error("--libraries knows " + ", ".join(sorted(LIBRARIES | PRELOADED)))
    return options


def sizes_of(options):
    """Those to measure, and those that leave a rank no element: calls that move nothing for it are not timed."""
    if options.collective == "barrier":
        return [0], []
    sizes = options.sizes or [options.minbytes]
    while not options.sizes and sizes[-1] * options.stepfactor <= options.maxbytes:
        sizes.append(sizes[-1] * options.stepfactor)
    blocks = options.ranks if options.collective.removesuffix("_v") in VARYING else 1
    least = blocks * ELEMENT_BYTES
    return [size for size in sizes if size >= least], [size for size in sizes if size < least]
