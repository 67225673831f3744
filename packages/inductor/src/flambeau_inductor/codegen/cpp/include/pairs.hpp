// Two registers a value: 32 bfloat16 (16 with AVX2) are read as one register, of which the even elements become one
// register of float and the odd ones another. That is a shift and a mask, where elements in order are spread and packed
// again, and two chains of work run side by side.
#pragma once
#include "arithmetic.hpp"
#include "memory.hpp"

namespace fb {

// What does the same to both registers.
#define BOTH_1(NAME) \
  template <class T, int N> FB auto NAME(Two<T, N> x) { return two<N>(NAME(x.even), NAME(x.odd)); }
#define BOTH_2(NAME) \
  template <class T, int N> FB auto NAME(Two<T, N> a, Two<T, N> b) { \
    return two<N>(NAME(a.even, b.even), NAME(a.odd, b.odd)); \
  }
#define BOTH_OPERATOR(OP) \
  template <class T, int N> FB Two<T, N> operator OP(Two<T, N> a, Two<T, N> b) { \
    return {a.even OP b.even, a.odd OP b.odd}; \
  }
#define BOTH_MASKS(OP) \
  template <int N> FB TwoMasks<N> operator OP(TwoMasks<N> a, TwoMasks<N> b) { \
    return {a.even OP b.even, a.odd OP b.odd}; \
  }
// clang-format off
BOTH_OPERATOR(+) BOTH_OPERATOR(-) BOTH_OPERATOR(*)
BOTH_MASKS(&) BOTH_MASKS(|) BOTH_MASKS(^)
// clang-format on
template <class T, int N> FB Two<T, N> operator-(Two<T, N> x) { return {-x.even, -x.odd}; }
template <int N> FB TwoMasks<N> operator~(TwoMasks<N> x) { return {~x.even, ~x.odd}; }
// clang-format off
BOTH_1(abs) BOTH_1(isnan) BOTH_1(floor) BOTH_1(ceil) BOTH_1(trunc) BOTH_1(round_even) BOTH_1(sqrt) BOTH_1(rsqrt)
BOTH_1(reciprocal) BOTH_1(relu) BOTH_1(sign) BOTH_1(exp) BOTH_1(exp2) BOTH_1(expm1) BOTH_1(log) BOTH_1(log2)
BOTH_1(log10) BOTH_1(log1p) BOTH_1(sigmoid) BOTH_1(tanh) BOTH_1(sin) BOTH_1(cos) BOTH_1(erf) BOTH_1(rough_exp)
BOTH_1(rough_sigmoid) BOTH_1(rough_tanh) BOTH_1(round_bf16) BOTH_1(round_bf16_short)
BOTH_2(eq) BOTH_2(ne) BOTH_2(lt) BOTH_2(le) BOTH_2(gt) BOTH_2(ge) BOTH_2(maximum) BOTH_2(minimum) BOTH_2(fmax)
BOTH_2(fmin) BOTH_2(divide) BOTH_2(pow)
// clang-format on
template <class T, int N> FB Two<T, N> divide_all(Two<T, N> a, T b) {
  return {divide_all(a.even, b), divide_all(a.odd, b)};
}
template <class T, int N> FB Two<T, N> fma(Two<T, N> a, Two<T, N> b, Two<T, N> c) {
  return {fma(a.even, b.even, c.even), fma(a.odd, b.odd, c.odd)};
}
template <class T, int N> FB Two<T, N> select(TwoMasks<N> m, Two<T, N> a, Two<T, N> b) {
  return {select(m.even, a.even, b.even), select(m.odd, a.odd, b.odd)};
}

// The first elements of a row: as many of its even ones, or one more, as of its odd ones.
template <int N, class T> FB Two<T, N> keep(Lanes<N> t, Two<T, N> fresh, Two<T, N> old) {
  int64_t n = __builtin_popcount(t.bits);
  return {keep<N / 2>(first<N / 2>((n + 1) / 2), fresh.even, old.even),
          keep<N / 2>(first<N / 2>(n / 2), fresh.odd, old.odd)};
}

template <int N, class P> FB Two<float, N> load_two(const bf16* p, P t) {
  typedef raw<float, N / 2> R;
  raw<uint32_t, N / 2> both = bits_as<raw<uint32_t, N / 2>>(load_raw<uint16_t, N>((const uint16_t*)p, t));
  return {Vec<float, N / 2>(bits_as<R>(both << 16)), Vec<float, N / 2>(bits_as<R>(both & 0xffff0000u))};
}
template <int N, class P> FB void store_two(bf16* p, Two<float, N> x, P t) {
  store_raw<uint16_t, N>((uint16_t*)p, packed(x), t);
}
// Memory of the call, where registers lie as they are: whole ones, whatever lanes they hold.
template <int N, class P> FB Two<float, N> load_two(const float* p, P) {
  return {Vec<float, N / 2>(load_raw<float, N / 2>(p, Full{})),
          Vec<float, N / 2>(load_raw<float, N / 2>(p + N / 2, Full{}))};
}
template <int N, class P> FB void store_two(float* p, Two<float, N> x, P) {
  store_raw<float, N / 2>(p, x.even.v, Full{});
  store_raw<float, N / 2>(p + N / 2, x.odd.v, Full{});
}

}  // namespace fb
