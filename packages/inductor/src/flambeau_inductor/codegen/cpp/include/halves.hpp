// The halves of a vector, and two vectors in one.
#pragma once
#include "vectors.hpp"

namespace fb {

template <class T, int N> FB Vec<T, N / 2> low_half(Vec<T, N> x) {
  if constexpr (N == 16) return Vec<T, 8>(__builtin_shufflevector(x.v, x.v, 0, 1, 2, 3, 4, 5, 6, 7));
  else if constexpr (N == 8) return Vec<T, 4>(__builtin_shufflevector(x.v, x.v, 0, 1, 2, 3));
  else return Vec<T, 2>(__builtin_shufflevector(x.v, x.v, 0, 1));
}
template <class T, int N> FB Vec<T, N / 2> high_half(Vec<T, N> x) {
  if constexpr (N == 16) return Vec<T, 8>(__builtin_shufflevector(x.v, x.v, 8, 9, 10, 11, 12, 13, 14, 15));
  else if constexpr (N == 8) return Vec<T, 4>(__builtin_shufflevector(x.v, x.v, 4, 5, 6, 7));
  else return Vec<T, 2>(__builtin_shufflevector(x.v, x.v, 2, 3));
}
template <class T, int N> FB Vec<T, 2 * N> join(Vec<T, N> a, Vec<T, N> b) {
  if constexpr (N == 8)
    return Vec<T, 16>(__builtin_shufflevector(a.v, b.v, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  else if constexpr (N == 4) return Vec<T, 8>(__builtin_shufflevector(a.v, b.v, 0, 1, 2, 3, 4, 5, 6, 7));
  else return Vec<T, 4>(__builtin_shufflevector(a.v, b.v, 0, 1, 2, 3));
}

}  // namespace fb
