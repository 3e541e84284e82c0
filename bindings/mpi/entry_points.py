#!/usr/bin/env python3
"""Writes the functions of MPI that the binding defines, from the tables below: every collective blocking,
nonblocking and persistent, with counts of int and of MPI_Count; and, for Fortran, those which do not call the ones for C.
Usage: entry_points.py openmpi|mpich C_OUTPUT FORTRAN_OUTPUT. What they do is in src/serve.h and src/fortran.h."""

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

# Of persistent ones: Open MPI 4 has an extension, 5 has the standard's, though it calls itself 3.1.
PREFIXES = {"openmpi": ["MPI_", "MPIX_"], "mpich": ["MPI_"]}

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


def declaration(function, name, others=(), wide=False):
    return f"int {function}({', '.join([*collective_parameters(name, wide), *others])})"


def function_enumerator(name):
    return "Function::k" + name.title().replace("_", "")


def significant(name, side):
    """When this rank's datatypes and arrays of that side mean something, as a C expression."""
    if name.startswith("Gather"):
        return "send != MPI_IN_PLACE" if side == "send" else "kept.rank() == root"
    if name.startswith("Scatter"):
        return "kept.rank() == root" if side == "send" else "recv != MPI_IN_PLACE"
    return "send != MPI_IN_PLACE" if side == "send" and name != "Bcast" else "true"


def kept_captures(name):
    """What a persistent call must own: its arguments live as long as the caller likes."""
    captures = []
    for parameter in COLLECTIVES[name].split():
        side = "send" if parameter.startswith("s") else "recv"
        if parameter.endswith("types"):
            counts = parameter.removesuffix("types") + "counts"
            captures.append(f"{parameter} = kept.types({parameter}, {counts}, {significant(name, side)})")
        elif parameter.endswith("type"):
            captures.append(f"{parameter} = kept.type({parameter}, {significant(name, side)})")
        elif parameter.endswith(("counts", "displs")):
            captures.append(f"{parameter} = kept.numbers({parameter}, {significant(name, side)})")
    return ", ".join(["=", *captures])


def c_collective(name, kind, wide, prefix="MPI_"):
    """kind: "", "I" or "_init"."""
    arguments = COLLECTIVES[name].split()
    call = f"tutti::mpi::{name.lower()}({', '.join(['work', *arguments])})"
    bodies = f"[&](Work& work) {{ return {call}; }}"
    arguments.append("comm")
    others = []
    if kind == "_init":
        others.append("MPI_Info info")
        arguments.append("info")
        bodies += (f",\n      [&]([[maybe_unused]] Kept& kept) -> Body {{ return [{kept_captures(name)}](Work& work) "
                   f"{{ return {call}; }}; }}")
    if kind:
        others.append("MPI_Request* request")
        arguments.append("request")
    base = ("I" + name.lower() if kind == "I" else name + kind) + ("_c" if wide else "")
    served = {"": "serve", "I": "start", "_init": "prepare"}[kind]
    declared = declaration(prefix + base, name, others, wide)
    # The headers may lack the persistent ones. So may the MPI library, and the ones with large counts.
    known = f"{declared};\n{declared.replace(prefix, 'P' + prefix, 1)};\n" if kind == "_init" else ""
    own = f"P{prefix}{base}"
    lacking = f"  if (TUTTI_MPI_LACKS({own})) return tutti::mpi::report_lack(comm);\n" if kind == "_init" or wide else ""
    by_name = f"#ifndef {own}\n#define {own} TUTTI_MPI_FUNCTION({own})\n#endif\n"
    return known + by_name + f"""{declared} {{
{lacking}  return tutti::mpi::{served}({function_enumerator(name)}, comm{', request' if kind else ''}, {bodies},
      [&] {{ return {own}({', '.join(arguments)}); }});
}}
"""


def write_c(family):
    text = ["""#include "interface.h"
#include "serve.h"

using tutti::mpi::Body;
using tutti::mpi::Function;
using tutti::mpi::Kept;
using tutti::mpi::Work;

extern "C" {
"""]
    for name in COLLECTIVES:
        text += [c_collective(name, "", False), c_collective(name, "I", False)]
    text.append("#pragma GCC visibility push(default)")
    for name in COLLECTIVES:
        text += [c_collective(name, "_init", False, prefix) for prefix in PREFIXES[family]]
    text.append("#pragma GCC visibility pop\n#if MPI_VERSION >= 4")
    for name in COLLECTIVES:
        if name != "Barrier":
            text += [c_collective(name, kind, True) for kind in ("", "I", "_init")]
    text.append("#endif\n}  // extern \"C\"")
    return "\n".join(text) + "\n"


# ---- Fortran ----
# Parameters of these are handles, and numbers. `ended` is a handle that the call may change.
OTHERS = {
    "Init": "no_arguments",
    "Init_thread": "no_arguments required provided",
    "Finalize": "",
    "Comm_free": "ended",
    "Comm_disconnect": "ended",
    "Start": "started",
}
# Buffers, addresses, and sizes of another type than INTEGER.
ANY_TYPE = ("send", "recv", "buffer", "base", "size")
# How a parameter of Fortran becomes one of C.
TO_C = {
    "send": "address(send)", "recv": "address(recv)", "buffer": "address(buffer)", "op": "PMPI_Op_f2c(*op)",
    "comm": "PMPI_Comm_f2c(*comm)", "info": "PMPI_Info_f2c(*info)",
    "no_arguments": "nullptr, nullptr", "ended": "&ended_c", "request": "&request_c", "started": "&started_c",
    "provided": "provided", "sendtypes": "sendtypes_c.data()", "recvtypes": "recvtypes_c.data()",
}
BEFORE = {
    "ended": "MPI_Comm ended_c = PMPI_Comm_f2c(*ended);",
    "request": "MPI_Request request_c = MPI_REQUEST_NULL;",
    "started": "MPI_Request started_c = PMPI_Request_f2c(*started);",
    "sendtypes": "const auto sendtypes_c = types_of(sendtypes, *comm, address(send) != MPI_IN_PLACE);",
    "recvtypes": "const auto recvtypes_c = types_of(recvtypes, *comm, true);",
}
AFTER = {
    "ended": "*ended = PMPI_Comm_c2f(ended_c);",
    "request": "*request = PMPI_Request_c2f(request_c);", "started": "*started = PMPI_Request_c2f(started_c);",
}
# Functions that complete requests: their parameters; the statement that handles the binding's requests before the MPI
# library's own function; the value that the entry point returns, as an expression with `failures` and with `result`,
# which the MPI library's function has returned.
ONE = "failures.of_one(result, 0)"
ANY = "failures.of_one(result, *index - first_index(failures))"
ALL = "failures.of_several(result, *count, nullptr, 0, known(statuses))"
SOME = "failures.of_several(result, *outcount, indices, first_index(failures), known(statuses))"
COMPLETIONS = {
    "Wait": ("request status", "complete(1, request)", ONE),
    "Test": ("request flag status", "look(1, request)", f"*flag != 0 ? {ONE} : result"),
    "Waitall": ("count requests statuses", "complete(*count, requests)", ALL),
    "Testall": ("count requests flag statuses", "look(*count, requests)", f"*flag != 0 ? {ALL} : result"),
    "Testany": ("count requests index flag status", "look(*count, requests)", f"*flag != 0 ? {ANY} : result"),
    "Testsome": ("count requests outcount indices statuses", "look(*count, requests)", SOME),
    "Request_free": ("request", "release(request)", "result"),
    "Request_get_status": ("request flag status", "look(1, request)", "result"),
}
# Those that wait for one ask as their siblings do.
POLLED = {
    "Waitany": ("count requests index status", "Testany", "count requests index &flag status", "flag != 0",
                f"flag != 0 ? {ANY} : result"),
    "Waitsome": ("count requests outcount indices statuses", "Testsome", "count requests outcount indices statuses",
                 "*outcount != 0", SOME),
}


# Functions that make or free windows, and their change of the number of windows.
WINDOWS = {
    "Win_create": ("base size disp_unit info comm window", 1),
    "Win_allocate": ("size disp_unit info comm base window", 1),
    "Win_allocate_shared": ("size disp_unit info comm base window", 1),
    "Win_create_dynamic": ("info comm window", 1),
    "Win_free": ("window", -1),
}


def fortran_parameters(names):
    return ", ".join(f"{'void' if name in ANY_TYPE else 'MPI_Fint'}* {name}"
                     for name in [*names, "error"] if name != "no_arguments")


def converted(parameter):
    if parameter in TO_C:
        return TO_C[parameter]
    if parameter.endswith(("counts", "displs")):
        return parameter
    return f"PMPI_Type_f2c(*{parameter})" if parameter.endswith("type") else f"*{parameter}"


class Names:
    """What the functions for Fortran are called."""

    def __init__(self, family):
        self.family = family

    def symbols(self, name, prefix="MPI_"):
        """The function that mpi_f08 calls, then its names for compilers of Fortran."""
        low = (prefix + name).lower()
        if self.family == "mpich":
            return [f"{low}_f08_"]
        return ["o" + low + "_f", low, low + "_", low + "__", low.upper()]

    def original(self, name):
        return f"pmpi_{name.lower()}_" if self.family == "openmpi" else f"pmpir_{name.lower()}_f08_"

    def completions(self, name):
        """Those that complete requests: what they are called, and the MPI library's own."""
        yield self.symbols(name), self.original(name)
        # With results that are LOGICAL, Open MPI's mpi_f08 calls no other function that can be taken over.
        if self.family == "openmpi" and name in COMPLETIONS:
            yield [f"mpi_{name.lower()}_f08_"], f"pmpi_{name.lower()}_f08_"


    def windows(self, name):
        """Those of WINDOWS that do not call the ones for C: what they are called, and the MPI library's own."""
        if self.family == "openmpi":
            yield self.symbols(name), self.original(name)
            if "allocate" in name:  # with TYPE(C_PTR)
                yield self.symbols(name + "_cptr"), self.original(name + "_cptr")
        elif name != "Win_create":
            yield self.symbols(name), self.original(name)
            if "allocate" in name:  # with large displacements
                yield [f"mpi_{name.lower()}_f08_large_"], f"pmpir_{name.lower()}_f08_large_"


def fortran_function(symbols, parameters, body):
    function, *others = symbols
    text = f"void {function}({fortran_parameters(parameters)}) {{\n  {body}\n}}\n"
    return text + "".join(f"extern __typeof__({function}) {other} __attribute__((alias(\"{function}\")));\n"
                          for other in others)


def lacking(original):
    """What a function does whose original the MPI library lacks: not every one is of every library."""
    return (f"if (TUTTI_MPI_LACKS({original})) {{\n"
            "    const int lack = tutti::mpi::report_lack(MPI_COMM_WORLD);\n"
            "    if (error != nullptr) *error = lack;\n"
            "    return;\n  }\n  ")


def calling(name, parameters, prefix="MPI_"):
    """Calls the binding's function for C."""
    lines = [BEFORE[parameter] for parameter in parameters if parameter in BEFORE]
    arguments = ", ".join(converted(parameter) for parameter in parameters)
    lines.append(f"result = {prefix}{name}({arguments});")
    lines += [f"if (result == MPI_SUCCESS) {AFTER[parameter]}" for parameter in parameters if parameter in AFTER]
    if "sendtypes" in parameters:
        # These take memory.
        lines = ["const int thrown = tutti::mpi::caught([&] {", *lines, "});",
                 "if (thrown != MPI_SUCCESS) result = tutti::mpi::raise_error(PMPI_Comm_f2c(*comm), thrown);"]
    lines.insert(0, "int result = MPI_SUCCESS;")
    lines.append("if (error != nullptr) *error = result;")
    return "\n  ".join(lines)


def fortran_collectives(names):
    for name, parameters in COLLECTIVES.items():
        # MPICH's functions with buffers call those for C.
        if names.family == "mpich" and name != "Barrier":
            continue
        parameters = [*parameters.split(), "comm"]
        low = name.lower()
        yield fortran_function(names.symbols(name), parameters, calling(name, parameters))
        parameters = [*parameters, "request"]
        yield fortran_function(names.symbols("I" + low), parameters, calling("I" + low, parameters))
        parameters.insert(-1, "info")
        for prefix in PREFIXES[names.family]:
            yield fortran_function(names.symbols(name + "_init", prefix), parameters,
                                   calling(name + "_init", parameters, prefix))


def fortran_windows(names):
    for name, (parameters, change) in WINDOWS.items():
        parameters = parameters.split()
        for symbols, original in names.windows(name):
            yield f"void {original}({fortran_parameters(parameters)});"
            yield fortran_function(symbols, parameters,
                                   lacking(original) + "MPI_Fint result = MPI_SUCCESS;\n"
                                   f"  TUTTI_MPI_FUNCTION({original})({', '.join([*parameters, '&result'])});\n"
                                   f"  if (result == MPI_SUCCESS) tutti::mpi::count_window({change});\n"
                                   "  if (error != nullptr) *error = result;")


def write_fortran(family):
    names = Names(family)
    text = ["""#include "fortran.h"
#include "progress.h"

using tutti::mpi::any_requests;
using tutti::mpi::Failures;
using tutti::mpi::Requests;
using tutti::mpi::fortran::address;
using tutti::mpi::fortran::complete;
using tutti::mpi::fortran::known;
using tutti::mpi::fortran::look;
using tutti::mpi::fortran::release;
using tutti::mpi::fortran::types_of;

extern "C" {
#pragma GCC visibility push(default)
"""]
    if family == "openmpi":
        for name in COLLECTIVES:
            text += [declaration(prefix + name + "_init", name, ["MPI_Info info", "MPI_Request* request"]) + ";"
                     for prefix in PREFIXES[family]]
    text += fortran_collectives(names)
    for name, parameters in OTHERS.items():
        parameters = parameters.split()
        text.append(fortran_function(names.symbols(name), parameters, calling(name, parameters)))
    text.append(fortran_function(names.symbols("Startall"), ["count", "requests"],
                                 "const int result = tutti::mpi::fortran::start_all(*count, requests);\n"
                                 "  if (error != nullptr) *error = result;"))
    testany = fortran_parameters(COMPLETIONS["Testany"][0].split())
    # Its address would be needed when the binding is loaded.
    text.append(f"void {names.original('Testany')}({testany});\n"
                "static int first_index(const Failures& failures) {\n"
                "  if (failures.none()) return 1;\n"
                "  return tutti::mpi::fortran::first_index("
                f"[](auto... arguments) {{ TUTTI_MPI_FUNCTION({names.original('Testany')})(arguments...); }});\n}}")
    for name, (parameters, before, after) in COMPLETIONS.items():
        parameters = parameters.split()
        handles = "*count, Requests::in_fortran(requests)" if "count" in parameters else "1, Requests::in_fortran(request)"
        for symbols, original in names.completions(name):
            text.append(f"void {original}({fortran_parameters(parameters)});")
            text.append(fortran_function(
                symbols, parameters,
                lacking(original) +
                f"if (!any_requests()) return TUTTI_MPI_FUNCTION({original})({', '.join([*parameters, 'error'])});\n"
                f"  {before};\n"
                f"  [[maybe_unused]] Failures failures({handles});\n"
                "  MPI_Fint result = MPI_SUCCESS;\n"
                f"  TUTTI_MPI_FUNCTION({original})({', '.join([*parameters, '&result'])});\n"
                + (f"  result = {after};\n" if after != "result" else "") +
                "  if (error != nullptr) *error = result;"))
    for name, (parameters, test, arguments, done, after) in POLLED.items():
        parameters = parameters.split()
        original = names.original(name)
        text.append(f"void {original}({fortran_parameters(parameters)});")
        text.append(fortran_function(
            names.symbols(name), parameters,
            lacking(original) +
            f"if (!any_requests()) return TUTTI_MPI_FUNCTION({original})({', '.join([*parameters, 'error'])});\n"
            "  [[maybe_unused]] MPI_Fint flag = 0;\n"
            "  tutti::mpi::fortran::poll(*count, requests, error, [&](Failures& failures, MPI_Fint& result) {\n"
            f"    TUTTI_MPI_FUNCTION({names.original(test)})({', '.join([*arguments.split(), '&result'])});\n"
            f"    result = {after};\n"
            f"    return {done};\n  }});"))
    text += fortran_windows(names)
    text.append("#pragma GCC visibility pop\n}  // extern \"C\"")
    return "\n".join(text) + "\n"


def main():
    family, c_output, fortran_output = sys.argv[1:]
    pathlib.Path(c_output).write_text(write_c(family), encoding="utf-8")
    pathlib.Path(fortran_output).write_text(write_fortran(family), encoding="utf-8")


main()
