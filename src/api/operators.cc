// User-defined operators and datatypes.
#include "calls/operators.h"

#include <fmt/core.h>

#include <cstring>
#include <memory>

#include "api/handles.h"
#include "api/public_types.h"

namespace tutti::internal::api {
namespace {

class UserFunction final : public reduction::UserOperator {
 public:
  UserFunction(tuttiRedOpFunction_t function, void* context) : function_(function), context_(context) {}
  void apply(const std::byte* in, std::byte* inout, std::size_t count, int datatype) const override {
    const InOperator inside;
    function_(in, inout, count, static_cast<tuttiDataType_t>(datatype), context_);
  }

 private:
  const tuttiRedOpFunction_t function_;
  void* const context_;
};

Status check_sum(const void* scalar, tuttiDataType_t datatype, tuttiScalarResidence_t residence) {
  const DataType type = type_of(datatype);
  if (size_of(type) == 0 && type != DataType::kOpaque) {
    return Status::invalid_argument("datatype is not a tuttiDataType_t");
  }
  if (!supports(type, ReduceOp::kPreMulSum)) {
    return Status::invalid_argument(fmt::format("a pre-multiplied sum is not defined for datatype {}", name_of(type)));
  }
  if (residence != tuttiScalarDevice && residence != tuttiScalarHostImmediate) {
    return Status::invalid_argument(
        fmt::format("residence is {}, which is not a tuttiScalarResidence_t", static_cast<int>(residence)));
  }
  return scalar != nullptr ? Status() : Status::invalid_argument("scalar is NULL");
}

// `make` returns the operator, or an error.
template <class Make>
tuttiResult_t create(const char* name, tuttiRedOp_t* op, tuttiComm_t comm, Make make) {
  const auto body = [&](Communicator* c) {
    const auto refused = [&](const Status& status) { return report(status.with_context(name), c); };
    if (op == nullptr) return refused(Status::invalid_argument("op is NULL"));
    Result<std::shared_ptr<CustomOperator>> made = make();
    if (!made.is_ok()) return refused(made.status());
    Result<int> handle = c->operators().add(std::move(*made));
    if (!handle.is_ok()) return refused(handle.status());
    *op = static_cast<tuttiRedOp_t>(*handle);
    return tuttiSuccess;
  };
  return look(comm, body, name);
}

}  // namespace
}  // namespace tutti::internal::api

using tutti::internal::Communicator;
using tutti::internal::CustomOperator;
using tutti::internal::kMostElementBytes;
using tutti::internal::ReduceOp;
using tutti::internal::Result;
using tutti::internal::Status;
namespace api = tutti::internal::api;

tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t* op, void* scalar, tuttiDataType_t datatype,
                                        tuttiScalarResidence_t residence, tuttiComm_t comm) {
  return api::create("tuttiRedOpCreatePreMulSum", op, comm, [&]() -> Result<std::shared_ptr<CustomOperator>> {
    if (Status s = api::check_sum(scalar, datatype, residence); !s.is_ok()) return s;
    auto made = std::make_shared<CustomOperator>();
    made->kind = ReduceOp::kPreMulSum;
    made->type = api::type_of(datatype);
    if (residence == tuttiScalarDevice) {
      made->scalar = scalar;
    } else {
      std::memcpy(made->value.data(), scalar, size_of(made->type));
    }
    return made;
  });
}

tuttiResult_t tuttiRedOpCreate(tuttiRedOp_t* op, tuttiRedOpFunction_t function, void* context, int commutative,
                               tuttiComm_t comm) {
  return api::create("tuttiRedOpCreate", op, comm, [&]() -> Result<std::shared_ptr<CustomOperator>> {
    if (function == nullptr) return Status::invalid_argument("function is NULL");
    auto made = std::make_shared<CustomOperator>();
    made->kind = commutative != 0 ? ReduceOp::kUser : ReduceOp::kUserOrdered;
    made->user = std::make_unique<api::UserFunction>(function, context);
    return made;
  });
}

tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm) {
  return api::look(comm, [&](Communicator* c) {
    const Status status = c->operators().remove(static_cast<int>(op));
    return status.is_ok() ? tuttiSuccess : api::report(status.with_context("tuttiRedOpDestroy"), c);
  });
}

tuttiResult_t tuttiTypeCreate(tuttiDataType_t* datatype, size_t element_bytes, tuttiComm_t comm) {
  return api::look(comm, [&](Communicator* c) {
    const auto refused = [&](const Status& status) { return api::report(status.with_context("tuttiTypeCreate"), c); };
    if (datatype == nullptr) return refused(Status::invalid_argument("datatype is NULL"));
    if (element_bytes == 0 || element_bytes > kMostElementBytes) {
      return refused(Status::invalid_argument(
          fmt::format("element_bytes must be from 1 to {}, and is {}", kMostElementBytes, element_bytes)));
    }
    auto handle = c->datatypes().add(std::make_shared<const std::uint32_t>(static_cast<std::uint32_t>(element_bytes)));
    if (!handle.is_ok()) return refused(handle.status());
    *datatype = static_cast<tuttiDataType_t>(*handle);
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiTypeDestroy(tuttiDataType_t datatype, tuttiComm_t comm) {
  return api::look(comm, [&](Communicator* c) {
    const Status status = c->datatypes().remove(static_cast<int>(datatype));
    return status.is_ok() ? tuttiSuccess : api::report(status.with_context("tuttiTypeDestroy"), c);
  });
}
