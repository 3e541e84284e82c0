#include "reduction/device_operators_inl.h"

namespace tutti::internal::reduction {

TUTTI_DEVICE_OPERATORS(DataType::kUint32);
TUTTI_DEVICE_OPERATORS(DataType::kUint64);
TUTTI_DEVICE_OPERATORS(DataType::kBool);

}  // namespace tutti::internal::reduction
