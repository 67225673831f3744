// Division, remainders, shifts and powers of integers; floor division and remainders of floats.
#pragma once
#include "arithmetic.hpp"

namespace fb {

// Integer division never traps: a zero divisor is reported through the flag and gives zero, the lowest value over -1
// wraps.
template <class T> FB T div_trunc(T a, T b, int64_t* failed) {
  if (b == 0) {
    *failed = 2;
    return 0;
  }
  if constexpr ((T)-1 < (T)0) {
    if (b == (T)-1) return (T)(0 - (uint64_t)a);
  }
  return a / b;
}
template <class T> FB T div_floor(T a, T b, int64_t* failed) {
  T q = div_trunc(a, b, failed);
  if constexpr ((T)-1 < (T)0) {
    if (b != 0 && (T)(q * b) != a && ((a < 0) != (b < 0))) --q;
  }
  return q;
}
template <class T> FB T mod_trunc(T a, T b, int64_t* failed) {
  T q = div_trunc(a, b, failed);
  return (T)(a - (T)(q * b));
}
template <class T> FB T mod_floor(T a, T b, int64_t* failed) {
  T r = mod_trunc(a, b, failed);
  if constexpr ((T)-1 < (T)0) {
    if (b != 0 && r != 0 && ((r < 0) != (b < 0))) r = (T)(r + b);
  }
  return r;
}
template <class T, class P> FB T lane_or_one(P t, int k, T b) {
  if constexpr (same_v<P, Full>) return b;
  else return ((t.bits >> k) & 1) ? b : (T)1;
}
#define FB_INT_DIVISION(NAME) \
  template <class T, int N, class P> FB Vec<T, N> NAME(Vec<T, N> a, Vec<T, N> b, int64_t* failed, P t) { \
    Vec<T, N> r; \
    for (int k = 0; k < N; ++k) r.set(k, NAME(a[k], lane_or_one(t, k, b[k]), failed)); \
    return r; \
  }
// clang-format off
FB_INT_DIVISION(div_trunc) FB_INT_DIVISION(div_floor) FB_INT_DIVISION(mod_trunc) FB_INT_DIVISION(mod_floor)
// clang-format on
FB float fmod(float a, float b) { return __builtin_fmodf(a, b); }
FB double fmod(double a, double b) { return __builtin_fmod(a, b); }
template <class T, int N> FB Vec<T, N> fmod(Vec<T, N> a, Vec<T, N> b) {
  return each([](T x, T y) { return fmod(x, y); }, a, b);
}
template <class V> FB V float_mod_floor(V a, V b) {
  V r = fmod(a, b), zero = V(0);
  return select(ne(r, zero) & (lt(b, zero) ^ lt(r, zero)), r + b, r);
}
template <class V> FB V float_div_floor(V a, V b) {
  V zero = V(0), m = fmod(a, b), d = divide(a - m, b);
  d = select(ne(m, zero) & (lt(b, zero) ^ lt(m, zero)), d - V(1), d);
  V f = floor(d);
  f = select(gt(d - f, V((typename LaneOf<V>::type)0.5)), f + V(1), f);
  f = select(eq(d, zero), copysign(zero, divide(a, b)), f);
  return select(eq(b, zero), divide(a, b), f);
}

template <class T> FB T shift_left(T a, T b) {
  return (b < 0 || b >= (T)(sizeof(T) * 8)) ? (T)0 : (T)((uint64_t)a << b);
}
template <class T> FB T shift_right(T a, T b) {
  T top = (T)(sizeof(T) * 8 - 1);
  if constexpr ((T)-1 > (T)0) return b > top ? (T)0 : (T)(a >> b);
  else return (T)(a >> ((b < 0 || b > top) ? top : b));
}
template <class T, int N> FB Vec<T, N> shift_left(Vec<T, N> a, Vec<T, N> b) {
  return each([](T x, T y) { return shift_left(x, y); }, a, b);
}
template <class T, int N> FB Vec<T, N> shift_right(Vec<T, N> a, Vec<T, N> b) {
  return each([](T x, T y) { return shift_right(x, y); }, a, b);
}

// Integer powers as eager: by squaring, a negative exponent gives 1, -1 or 0.
template <class T> FB T ipow(T a, T b) {
  if (b < 0) return a == 1 ? (T)1 : (a == (T)-1 ? ((b & 1) ? (T)-1 : (T)1) : (T)0);
  uint64_t r = 1, base = (uint64_t)a, n = (uint64_t)b;
  for (; n; n >>= 1) {
    if (n & 1) r *= base;
    base *= base;
  }
  return (T)r;
}
template <class T, int N> FB Vec<T, N> ipow(Vec<T, N> a, Vec<T, N> b) {
  return each([](T x, T y) { return ipow(x, y); }, a, b);
}

}  // namespace fb
