#!/usr/bin/env python3
"""Writes the functions of MPI's interface that the binding defines, from the table below: every collective blocking and
nonblocking, with counts of int and of MPI_Count. Usage: entry_points.py OUTPUT. What they do is in src/serve.h."""

import pathlib
import sys

# Parameters between their spaces, as the standard orders them.
COLLECTIVES = {
    "Allreduce": "send recv count type op",
    "Reduce": "send recv count type op root",
    "Scan": "send recv count type op",
    "Exscan": "send recv count type op",
    "Reduce_scatter": "send recv recvcounts type op",
    "Reduce_scatter_block": "send recv count type op",
    "Barrier": "",
    "Bcast": "buffer count type root",
    "Allgather": "send sendcount sendtype recv recvcount recvtype",
    "Gather": "send sendcount sendtype recv recvcount recvtype root",
    "Scatter": "send sendcount sendtype recv recvcount recvtype root",
    "Alltoall": "send sendcount sendtype recv recvcount recvtype",
    "Allgatherv": "send sendcount sendtype recv recvcounts rdispls recvtype",
    "Gatherv": "send sendcount sendtype recv recvcounts rdispls recvtype root",
    "Scatterv": "send sendcounts sdispls sendtype recv recvcount recvtype root",
    "Alltoallv": "send sendcounts sdispls sendtype recv recvcounts rdispls recvtype",
    "Alltoallw": "send sendcounts sdispls sendtypes recv recvcounts rdispls recvtypes",
}

# Each parameter in C; COUNT and DISPL are int, or what the functions for large counts have.
IN_C = {
    "send": "const void* send", "recv": "void* recv", "buffer": "void* buffer",
    "count": "COUNT count", "sendcount": "COUNT sendcount", "recvcount": "COUNT recvcount",
    "sendcounts": "const COUNT sendcounts[]", "recvcounts": "const COUNT recvcounts[]",
    "sdispls": "const DISPL sdispls[]", "rdispls": "const DISPL rdispls[]",
    "type": "MPI_Datatype type", "sendtype": "MPI_Datatype sendtype", "recvtype": "MPI_Datatype recvtype",
    "sendtypes": "const MPI_Datatype sendtypes[]", "recvtypes": "const MPI_Datatype recvtypes[]",
    "op": "MPI_Op op", "root": "int root",
}


def collective_parameters(name, wide):
    declared = [IN_C[parameter] for parameter in COLLECTIVES[name].split()] + ["MPI_Comm comm"]
    return [d.replace("COUNT", "MPI_Count" if wide else "int").replace("DISPL", "MPI_Aint" if wide else "int")
            for d in declared]


def function_enumerator(name):
    return "Function::k" + name.title().replace("_", "")


def c_collective(name, nonblocking, wide):
    arguments = COLLECTIVES[name].split()
    call = f"tutti::mpi::{name.lower()}({', '.join(['work', *arguments])})"
    parameters = collective_parameters(name, wide)
    arguments = [*arguments, "comm"]
    if nonblocking:
        parameters.append("MPI_Request* request")
        arguments.append("request")
    base = ("I" + name.lower() if nonblocking else name) + ("_c" if wide else "")
    served, request = ("start", ", request") if nonblocking else ("serve", "")
    return f"""int MPI_{base}({', '.join(parameters)}) {{
  return tutti::mpi::{served}({function_enumerator(name)}, comm{request}, [&](Work& work) {{ return {call}; }},
      [&] {{ return PMPI_{base}({', '.join(arguments)}); }});
}}
"""


def write_c():
    text = ["""#include "interface.h"
#include "serve.h"

using tutti::mpi::Function;
using tutti::mpi::Work;

extern "C" {
"""]
    for name in COLLECTIVES:
        text += [c_collective(name, nonblocking, False) for nonblocking in (False, True)]
    text.append("#if MPI_VERSION >= 4")
    for name in COLLECTIVES:
        if name != "Barrier":
            text += [c_collective(name, nonblocking, True) for nonblocking in (False, True)]
    text.append("#endif\n}  // extern \"C\"")
    return "\n".join(text) + "\n"


def main():
    pathlib.Path(sys.argv[1]).write_text(write_c(), encoding="utf-8")


main()
