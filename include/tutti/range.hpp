// Part of tutti/tutti.hpp: what buffers can be.
#ifndef TUTTI_RANGE_HPP_
#define TUTTI_RANGE_HPP_

#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>

namespace tutti {

namespace detail {

// Whether std::data and std::size take it: std::vector, std::array, std::span, tutti::Memory. Not arrays of C: they are
// pointers to the calls that take pointer and count.
template <class T, class = void>
inline constexpr bool is_range = false;
template <class T>
inline constexpr bool
    is_range<T, std::void_t<decltype(std::data(std::declval<T&>())), decltype(std::size(std::declval<T&>()))>> =
        std::is_pointer_v<decltype(std::data(std::declval<T&>()))> && !std::is_array_v<T>;

// void, if all of them are ranges; otherwise the function does not take part in the overload resolution.
template <class... Ts>
using if_ranges = std::enable_if_t<(is_range<std::remove_reference_t<Ts>> && ...)>;

// Of a range's elements, without const.
template <class T>
using element =
    std::remove_cv_t<std::remove_pointer_t<decltype(std::data(std::declval<std::remove_reference_t<T>&>()))>>;

// The elements of what an operation reads.
template <class Range>
[[nodiscard]] const element<const Range>* read(const Range& range) {
  return std::data(range);
}
// The elements of what an operation writes.
template <class Range>
[[nodiscard]] element<Range>* written(Range& range) {
  static_assert(!std::is_const_v<std::remove_pointer_t<decltype(std::data(range))>>,
                "a buffer to receive into has elements that can be written to");
  return std::data(range);
}
// The number of a range's elements.
template <class Range>
[[nodiscard]] std::size_t count(const Range& range) {
  return static_cast<std::size_t>(std::size(range));
}
template <class Send, class Recv>
constexpr void check_elements() {
  static_assert(std::is_same_v<element<Send>, element<Recv>>, "both buffers have elements of one type");
}

}  // namespace detail

}  // namespace tutti

#endif  // TUTTI_RANGE_HPP_
