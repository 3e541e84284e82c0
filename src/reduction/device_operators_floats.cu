#include "reduction/device_operators_inl.h"

namespace tutti::internal::reduction {

TUTTI_DEVICE_OPERATORS(DataType::kFloat32);
TUTTI_DEVICE_OPERATORS(DataType::kFloat64);
TUTTI_DEVICE_OPERATORS(DataType::kComplex64);
TUTTI_DEVICE_OPERATORS(DataType::kComplex128);

}  // namespace tutti::internal::reduction
