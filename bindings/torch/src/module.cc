// The Python module tutti_torch._C.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/extension.h>
#include <tutti/tutti.h>

#include <chrono>
#include <optional>
#include <sstream>

#include "backend.h"
#include "python_exit.h"
#include "recorder.h"
#include "watchdog.h"

namespace tutti_torch {
namespace {

namespace py = pybind11;

c10::intrusive_ptr<Backend> create(const c10d::DistributedBackendOptions& options,
                                   c10::intrusive_ptr<c10d::Backend::Options> own) {
  if (own == nullptr) own = c10::make_intrusive<c10d::Backend::Options>("tutti");
  own->timeout = std::chrono::duration_cast<std::chrono::milliseconds>(options.timeout);
  own->group_name = options.group_id;
  own->global_ranks_in_group.assign(options.global_ranks_in_group.begin(), options.global_ranks_in_group.end());
  return c10::make_intrusive<Backend>(options.store, options.group_rank, options.group_size, std::move(own));
}

py::object time_or_none(std::int64_t ns) {
  return ns != 0 ? py::object(py::int_(ns)) : py::none();
}

// Made by the program, without a process group of torch's.
c10::intrusive_ptr<Backend> make(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                 std::chrono::milliseconds timeout) {
  if (rank < 0 || rank >= size) refuse("init", c10::str("rank ", rank, " is not one of ", size, " ranks"));
  // No ranks in the default group: there may be none, or one of other ranks.
  return c10::make_intrusive<Backend>(store, rank, size, c10::make_intrusive<c10d::Backend::Options>("tutti", timeout));
}

// One entry as torch.distributed's flight recorder has it, and what tutti_torch/flight.py needs beside that.
py::dict as_dict(const Recorder::Entry& entry) {
  py::dict result;
  const bool transfer = entry.transfer();
  result["record_id"] = entry.id;
  result["pg_id"] = entry.group->id;
  result["process_group"] = py::make_tuple(entry.group->name, entry.group->description);
  result["thread_name"] = entry.thread_name;
  std::ostringstream thread;
  thread << entry.thread;
  result["thread_id"] = thread.str();
  result["collective_seq_id"] = transfer ? 0 : entry.sequence;
  result["p2p_seq_id"] = transfer ? entry.sequence : 0;
  result["op_id"] = entry.sequence;
  result["profiling_name"] = entry.operation;
  result["type"] = entry.type;
  result["group_ranks"] = entry.group->ranks;
  result["from_to"] = transfer ? py::object(py::make_tuple(entry.route.from, entry.route.to)) : py::none();
  result["is_p2p"] = transfer;
  result["input_sizes"] = entry.input_sizes;
  result["input_dtypes"] = entry.input_types;
  result["output_sizes"] = entry.output_sizes;
  result["output_dtypes"] = entry.output_types;
  result["time_created_ns"] = entry.created_ns;
  result["timeout_ms"] = entry.timeout_ms;
  const auto state = entry.state.load();
  result["state"] = name_of(state);
  const std::int64_t ended = entry.ended_ns.load();
  result["time_discovered_started_ns"] = time_or_none(entry.started_ns.load());
  result["time_discovered_completed_ns"] = time_or_none(ended);
  result["duration_ms"] =
      ended != 0 ? py::object(py::float_(static_cast<double>(ended - entry.created_ns) / 1e6)) : py::none();
  result["retired"] = ended != 0;
  result["frames"] = py::list();
  return result;
}

py::list flight_record() {
  {
    const py::gil_scoped_release released;  // what has ended lets go of tensors
    DeviceQueue::settle_all();
    Watchdog::get().settle_all();
  }
  py::list result;
  for (const auto& entry : Recorder::get().entries()) result.append(as_dict(*entry));
  return result;
}

// Longer than a callback after an operation should take. After it the process exits even if a callback still waits.
constexpr std::chrono::seconds kExitPatience{5};

void exit_begins() {
  PythonExit::begin(kExitPatience);
}

int version() {
  int code = 0;
  (void)tuttiGetVersion(&code);
  return code;
}

}  // namespace
}  // namespace tutti_torch

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using tutti_torch::Backend;
  pybind11::module_::import("torch.distributed");
  pybind11::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>(m, "ProcessGroupTutti")
      .def(pybind11::init(&tutti_torch::make), pybind11::arg("store"), pybind11::arg("rank"), pybind11::arg("size"),
           pybind11::arg("timeout") = kBackendDefaultTimeout, pybind11::call_guard<pybind11::gil_scoped_release>())
      .def(
          "monitored_barrier",
          [](Backend& backend, std::optional<std::chrono::milliseconds> timeout, bool wait_all_ranks) {
            c10d::BarrierOptions options;
            if (timeout) options.timeout = *timeout;
            backend.monitoredBarrier(options, wait_all_ranks);
          },
          pybind11::arg("timeout") = pybind11::none(), pybind11::arg("wait_all_ranks") = false,
          pybind11::call_guard<pybind11::gil_scoped_release>())
      .def("agree", &Backend::agree, pybind11::arg("flag"), pybind11::call_guard<pybind11::gil_scoped_release>())
      .def("failed", &Backend::failed, pybind11::call_guard<pybind11::gil_scoped_release>())
      .def("contributors", &Backend::contributors, pybind11::call_guard<pybind11::gil_scoped_release>())
      .def("get_error", &Backend::getError, pybind11::call_guard<pybind11::gil_scoped_release>())
      // For ranks outside a new group: its members join through their store and need no other rank.
      .def("perform_nocolor_split", [](Backend&, const at::Device&) {});
  m.def("create", &tutti_torch::create, pybind11::arg("options"), pybind11::arg("own"),
        pybind11::call_guard<pybind11::gil_scoped_release>());
  m.def("exit_begins", &tutti_torch::exit_begins, pybind11::call_guard<pybind11::gil_scoped_release>());
  m.def("flight_record", &tutti_torch::flight_record);
  m.def("version", &tutti_torch::version);
}
