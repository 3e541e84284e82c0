#include "failure_dump.h"

#include <c10/util/Exception.h>
#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "python_exit.h"

namespace tutti_torch {
namespace {

std::atomic<bool> written{false};

}  // namespace

void dump_after_failure() {
  try {
    const std::string prefix = c10d::getCvarString({"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}, "");
    if (prefix.empty() || written.exchange(true)) return;
    const PythonExit::Stay stay;
    if (!stay.granted()) return;
    const pybind11::gil_scoped_acquire lock;
    try {
      pybind11::module_::import("tutti_torch").attr("_dump_after_failure")(prefix);
    } catch (const pybind11::error_already_set& e) {
      TORCH_WARN("tutti: the flight record was not written: ", e.what());
    }
  } catch (const std::exception& e) {
    TORCH_WARN("tutti: the flight record was not written: ", e.what());
  }
}

}  // namespace tutti_torch
