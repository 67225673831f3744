// Square blocks of N x N elements, turned in registers.
#pragma once
#include "memory.hpp"

namespace fb {

// Square blocks of N x N elements turned in registers: after each of log2(N) steps that interleave the first half of
// the rows with the second, rows and columns have changed one more bit of their numbers.
template <int... I> struct Places {};
template <int N, int... I> struct PlacesTo { typedef typename PlacesTo<N - 1, N - 1, I...>::type type; };
template <int... I> struct PlacesTo<0, I...> { typedef Places<I...> type; };
template <int From, class R, int... I> FB R interleave(R a, R b, Places<I...>) {
  constexpr int N = sizeof...(I);
  return __builtin_shufflevector(a, b, (From + I / 2 + (I % 2) * N)...);
}
template <class T, int N> FB void turn_rows(raw<T, N> (&r)[N]) {
  typedef typename PlacesTo<N>::type All;
  raw<T, N> s[N];
#pragma GCC unroll 4
  for (int step = 1; step < N; step *= 2) {
#pragma GCC unroll 16
    for (int k = 0; k < N / 2; ++k) {
      s[2 * k] = interleave<0>(r[k], r[k + N / 2], All{});
      s[2 * k + 1] = interleave<N / 2>(r[k], r[k + N / 2], All{});
    }
#pragma GCC unroll 16
    for (int k = 0; k < N; ++k) r[k] = s[k];
  }
}
template <int N, class T> __attribute__((noinline)) void turn_part(const T* from, int64_t step, int64_t rows,
                                                                   int64_t run, T* to, int64_t to_step) {
  raw<T, N> r[N];
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) r[k] = k < rows ? load_raw<T, N>(from + k * step, first<N>(run)) : raw<T, N>{};
  turn_rows<T, N>(r);
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k)
    if (k < run) store_raw<T, N>(to + k * to_step, r[k], first<N>(rows));
}
template <class T> struct Moved { typedef T type; };
template <> struct Moved<bf16> { typedef uint16_t type; };
template <> struct Moved<f16> { typedef uint16_t type; };
template <> struct Moved<bool> { typedef int8_t type; };
// target[j * to_step + k] = source[k * step + j] for k < rows <= N and j < run <= N.
template <int N, class E> FB void turn(const E* source, int64_t step, int64_t rows, int64_t run, E* target,
                                       int64_t to_step) {
  typedef typename Moved<E>::type T;
  const T* from = (const T*)source;
  T* to = (T*)target;
  if (rows != N || run != N) return turn_part<N>(from, step, rows, run, to, to_step);
  raw<T, N> r[N];
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) r[k] = load_raw<T, N>(from + k * step, Full{});
  turn_rows<T, N>(r);
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) store_raw<T, N>(to + k * to_step, r[k], Full{});
}

}  // namespace fb
