#include "reduction/device_operators_inl.h"

namespace tutti::internal::reduction {

TUTTI_DEVICE_OPERATORS(DataType::kInt8);
TUTTI_DEVICE_OPERATORS(DataType::kInt16);
TUTTI_DEVICE_OPERATORS(DataType::kInt32);
TUTTI_DEVICE_OPERATORS(DataType::kInt64);
TUTTI_DEVICE_OPERATORS(DataType::kUint8);
TUTTI_DEVICE_OPERATORS(DataType::kUint16);

}  // namespace tutti::internal::reduction
