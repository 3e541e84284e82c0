#include "reduction/device_operators_inl.h"

namespace tutti::internal::reduction {

TUTTI_DEVICE_OPERATORS(DataType::kFloat16);
TUTTI_DEVICE_OPERATORS(DataType::kBfloat16);
TUTTI_DEVICE_OPERATORS(DataType::kFloat8E4M3);
TUTTI_DEVICE_OPERATORS(DataType::kFloat8E5M2);

}  // namespace tutti::internal::reduction
