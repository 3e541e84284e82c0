// Part of tutti/tutti.hpp: which datatype of the C API a C++ type is.
#ifndef TUTTI_TYPES_HPP_
#define TUTTI_TYPES_HPP_

#include <complex>
#include <cstddef>
#include <type_traits>

#include "tutti/types.h"

namespace tutti {

// Which tuttiDataType_t a C++ type is. 16- and 8-bit floats have no type of their own in C++20: say what
// your type is by specializing DataTypeOf for it. Other types are opaque (Communicator::data_type).
template <class T, class = void>
struct DataTypeOf {};
template <class T>
struct DataTypeOf<T, std::enable_if_t<std::is_integral_v<T> && sizeof(T) <= 8>> {
  static constexpr bool kSigned = std::is_signed_v<T>;
  static constexpr tuttiDataType_t value = sizeof(T) == 1   ? (kSigned ? tuttiInt8 : tuttiUint8)
                                           : sizeof(T) == 2 ? (kSigned ? tuttiInt16 : tuttiUint16)
                                           : sizeof(T) == 4 ? (kSigned ? tuttiInt32 : tuttiUint32)
                                                            : (kSigned ? tuttiInt64 : tuttiUint64);
};
template <>
struct DataTypeOf<float> {
  static constexpr tuttiDataType_t value = tuttiFloat32;
};
template <>
struct DataTypeOf<double> {
  static constexpr tuttiDataType_t value = tuttiFloat64;
};
template <>
struct DataTypeOf<bool> {
  static_assert(sizeof(bool) == 1);
  static constexpr tuttiDataType_t value = tuttiBool;
};
template <>
struct DataTypeOf<std::complex<float>> {
  static constexpr tuttiDataType_t value = tuttiComplex64;
};
template <>
struct DataTypeOf<std::complex<double>> {
  static constexpr tuttiDataType_t value = tuttiComplex128;
};
template <>
struct DataTypeOf<std::byte> {
  static constexpr tuttiDataType_t value = tuttiUint8;
};
template <class T>
inline constexpr tuttiDataType_t data_type_of = DataTypeOf<std::remove_cv_t<T>>::value;
template <class T, class = void>
inline constexpr bool has_data_type = false;
template <class T>
inline constexpr bool has_data_type<T, std::void_t<decltype(DataTypeOf<std::remove_cv_t<T>>::value)>> = true;

}  // namespace tutti

#endif  // TUTTI_TYPES_HPP_
