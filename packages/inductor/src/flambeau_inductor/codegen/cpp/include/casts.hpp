// From one type of values to another, as eager converts.
#pragma once
#include "narrow.hpp"

namespace fb {

// A number that the compiler cannot know: it makes another integer of a NaN, or of what lies out of range, than the
// processor does.
template <class T> FB T hidden(T x) {
  asm("" : "+x"(x));
  return x;
}
template <class T, int N> FB raw<T, N> hidden(raw<T, N> x) {
  if constexpr (sizeof(x) <= register_bytes) {
    asm("" : "+x"(x));
    return x;
  } else {
    struct Halves { raw<T, N / 2> low, high; } halves = bits_as<Halves>(x);
    return bits_as<raw<T, N>>(Halves{hidden<T, N / 2>(halves.low), hidden<T, N / 2>(halves.high)});
  }
}

template <class To, class From> FB To cast(From x) {
  if constexpr (same_v<To, bool>) return x != 0;
  else if constexpr (same_v<From, bool>) return (To)(x ? 1 : 0);
  else if constexpr (floating_v<From> && !floating_v<To> && sizeof(To) < 4) return (To)(int32_t)hidden(x);
  else if constexpr (floating_v<From> && !floating_v<To>) return (To)hidden(x);
  else return (To)x;
}
template <class To, class From, int N> FB typename Value<To, N>::type cast(Vec<From, N> x) {
  if constexpr (same_v<To, bool>) return to_mask<N>(x.v != raw<From, N>{});
  else if constexpr (floating_v<From> && !floating_v<To> && sizeof(To) < 4)
    return Vec<To, N>(convert_raw<To, N>(convert_raw<int32_t, N>(hidden<From, N>(x.v))));
  else if constexpr (floating_v<From> && !floating_v<To>) return Vec<To, N>(convert_raw<To, N>(hidden<From, N>(x.v)));
  else return Vec<To, N>(convert_raw<To, N>(x.v));
}
template <class To, int N> FB typename Value<To, N>::type cast(Mask<N> x) {
  if constexpr (same_v<To, bool>) return x;
  else if constexpr (floating_v<To>) return select(x, Vec<To, N>((To)1), Vec<To, N>((To)0));
  else return Vec<To, N>(convert_raw<To, N>(-x.v));
}
template <class To, class From, int N> FB Vec<To, N> bitcast(Vec<From, N> x) {
  return Vec<To, N>(bits_as<raw<To, N>>(x.v));
}
template <class To, class From> FB To bitcast(From x) { return bits_as<To>(x); }
template <class T, int N> FB typename Value<T, N>::type broadcast(typename Held<T>::type x) {
  return typename Value<T, N>::type(x);
}

}  // namespace fb
