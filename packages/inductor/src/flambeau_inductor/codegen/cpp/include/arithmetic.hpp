// Arithmetic that the processor has instructions for, and what is one or two of them.
#pragma once
#include "casts.hpp"
#include "lanes.hpp"

namespace fb {

template <class T> FB T fma(T a, T b, T c) {
  if constexpr (same_v<T, float>) return __builtin_fmaf(a, b, c);
  else return __builtin_fma(a, b, c);
}
template <class T, int N> FB Vec<T, N> fma(Vec<T, N> a, Vec<T, N> b, Vec<T, N> c) {
  // clang-format off
#if FB_AVX512
  if constexpr (same_v<T, float> && N == 16) return Vec<T, N>(__builtin_ia32_vfmaddps512_mask(a.v, b.v, c.v, -1, 4));
  else if constexpr (same_v<T, double> && N == 8) return Vec<T, N>(__builtin_ia32_vfmaddpd512_mask(a.v, b.v, c.v, -1, 4));
  else
#endif
#if FB_AVX2
  if constexpr (same_v<T, float> && N == 8) return Vec<T, N>(__builtin_ia32_vfmaddps256(a.v, b.v, c.v));
  else if constexpr (same_v<T, double> && N == 4) return Vec<T, N>(__builtin_ia32_vfmaddpd256(a.v, b.v, c.v));
  else
#endif
  // clang-format on
  {
    Vec<T, N> r;
    for (int k = 0; k < N; ++k) r.set(k, fma(a[k], b[k], c[k]));
    return r;
  }
}
template <class T, int N> FB Vec<T, N> fma(Vec<T, N> a, Vec<T, N> b, T c) { return fma(a, b, Vec<T, N>(c)); }
template <class T, int N> FB Vec<T, N> fma(Vec<T, N> a, T b, Vec<T, N> c) { return fma(a, Vec<T, N>(b), c); }

#define FB_ROUNDING(NAME, MODE, F, D) \
  FB float NAME(float x) { return F(x); } \
  FB double NAME(double x) { return D(x); } \
  template <class T, int N> FB Vec<T, N> NAME(Vec<T, N> a) { \
    FB_ROUND_512(MODE) FB_ROUND_256(MODE) { \
      return each([](T x) { return NAME(x); }, a); \
    } \
  }
#if FB_AVX512
#define FB_ROUND_512(MODE) \
  if constexpr (same_v<T, float> && N == 16) return Vec<T, N>(__builtin_ia32_rndscaleps_mask(a.v, MODE, a.v, -1, 4)); \
  else if constexpr (same_v<T, double> && N == 8) \
    return Vec<T, N>(__builtin_ia32_rndscalepd_mask(a.v, MODE, a.v, -1, 4)); \
  else
#else
#define FB_ROUND_512(MODE)
#endif
#if FB_AVX2
#define FB_ROUND_256(MODE) \
  if constexpr (same_v<T, float> && N == 8) return Vec<T, N>(__builtin_ia32_roundps256(a.v, MODE)); \
  else if constexpr (same_v<T, double> && N == 4) return Vec<T, N>(__builtin_ia32_roundpd256(a.v, MODE)); \
  else
#else
#define FB_ROUND_256(MODE)
#endif
FB_ROUNDING(round_even, 8, __builtin_rintf, __builtin_rint)
FB_ROUNDING(floor, 9, __builtin_floorf, __builtin_floor)
FB_ROUNDING(ceil, 10, __builtin_ceilf, __builtin_ceil)
FB_ROUNDING(trunc, 11, __builtin_truncf, __builtin_trunc)

FB float sqrt(float x) { return __builtin_sqrtf(x); }
FB double sqrt(double x) { return __builtin_sqrt(x); }
template <class T, int N> FB Vec<T, N> sqrt(Vec<T, N> a) {
  // clang-format off
#if FB_AVX512
  if constexpr (same_v<T, float> && N == 16) return Vec<T, N>(__builtin_ia32_sqrtps512_mask(a.v, a.v, -1, 4));
  else if constexpr (same_v<T, double> && N == 8) return Vec<T, N>(__builtin_ia32_sqrtpd512_mask(a.v, a.v, -1, 4));
  else
#endif
#if FB_AVX2
  if constexpr (same_v<T, float> && N == 8) return Vec<T, N>(__builtin_ia32_sqrtps256(a.v));
  else if constexpr (same_v<T, double> && N == 4) return Vec<T, N>(__builtin_ia32_sqrtpd256(a.v));
  else
#endif
    return each([](T x) { return sqrt(x); }, a);
  // clang-format on
}

// The hardware's max: the second operand where either is not a number.
template <class T> FB T max_second(T a, T b) { return a > b ? a : b; }
template <class T> FB T min_second(T a, T b) { return a < b ? a : b; }
template <class T, int N> FB Vec<T, N> max_second(Vec<T, N> a, Vec<T, N> b) {
  // clang-format off
#if FB_AVX512
  if constexpr (same_v<T, float> && N == 16) return Vec<T, N>(__builtin_ia32_maxps512_mask(a.v, b.v, a.v, -1, 4));
  else if constexpr (same_v<T, double> && N == 8) return Vec<T, N>(__builtin_ia32_maxpd512_mask(a.v, b.v, a.v, -1, 4));
  else
#endif
#if FB_AVX2
  if constexpr (same_v<T, float> && N == 8) return Vec<T, N>(__builtin_ia32_maxps256(a.v, b.v));
  else if constexpr (same_v<T, double> && N == 4) return Vec<T, N>(__builtin_ia32_maxpd256(a.v, b.v));
  else
#endif
    return Vec<T, N>(a.v > b.v ? a.v : b.v);
  // clang-format on
}
template <class T, int N> FB Vec<T, N> min_second(Vec<T, N> a, Vec<T, N> b) {
  // clang-format off
#if FB_AVX512
  if constexpr (same_v<T, float> && N == 16) return Vec<T, N>(__builtin_ia32_minps512_mask(a.v, b.v, a.v, -1, 4));
  else if constexpr (same_v<T, double> && N == 8) return Vec<T, N>(__builtin_ia32_minpd512_mask(a.v, b.v, a.v, -1, 4));
  else
#endif
#if FB_AVX2
  if constexpr (same_v<T, float> && N == 8) return Vec<T, N>(__builtin_ia32_minps256(a.v, b.v));
  else if constexpr (same_v<T, double> && N == 4) return Vec<T, N>(__builtin_ia32_minpd256(a.v, b.v));
  else
#endif
    return Vec<T, N>(a.v < b.v ? a.v : b.v);
  // clang-format on
}
template <class T, int N> FB Mask<N> isnan(Vec<T, N> a) { return to_mask<N>(a.v != a.v); }
template <class T> FB bool isnan(T a) { return a != a; }
template <class V> FB V maximum(V a, V b) {
  if constexpr (floating_v<typename LaneOf<V>::type>) return select(isnan(a), a, max_second(a, b));
  else return max_second(a, b);
}
template <class V> FB V minimum(V a, V b) {
  if constexpr (floating_v<typename LaneOf<V>::type>) return select(isnan(a), a, min_second(a, b));
  else return min_second(a, b);
}
template <int N> FB Mask<N> maximum(Mask<N> a, Mask<N> b) { return a | b; }
template <int N> FB Mask<N> minimum(Mask<N> a, Mask<N> b) { return a & b; }
FB bool maximum(bool a, bool b) { return a || b; }
FB bool minimum(bool a, bool b) { return a && b; }
template <class V> FB V fmax(V a, V b) { return select(isnan(b), a, max_second(a, b)); }
template <class V> FB V fmin(V a, V b) { return select(isnan(b), a, min_second(a, b)); }

template <class T> FB T abs(T x) {
  if constexpr (same_v<T, float>) return __builtin_fabsf(x);
  else if constexpr (same_v<T, double>) return __builtin_fabs(x);
  else if constexpr ((T)-1 > (T)0) return x;
  else return (T)(x < 0 ? (T)(0 - (uint64_t)x) : x);
}
template <class T, int N> FB Vec<T, N> abs(Vec<T, N> x) {
  if constexpr (floating_v<T>) {
    typedef int_of<sizeof(T)> I;
    return Vec<T, N>(bits_as<raw<T, N>>(bits_as<raw<I, N>>(x.v) & (I)(~((uint64_t)1 << (sizeof(T) * 8 - 1)))));
  } else if constexpr ((T)-1 > (T)0) return x;
  else return Vec<T, N>(x.v < 0 ? -x.v : x.v);
}
FB float copysign(float a, float b) { return __builtin_copysignf(a, b); }
FB double copysign(double a, double b) { return __builtin_copysign(a, b); }
template <class T, int N> FB Vec<T, N> copysign(Vec<T, N> a, Vec<T, N> b) {
  typedef int_of<sizeof(T)> I;
  I top = (I)((uint64_t)1 << (sizeof(T) * 8 - 1));
  return Vec<T, N>(bits_as<raw<T, N>>((bits_as<raw<I, N>>(a.v) & (I)~top) | (bits_as<raw<I, N>>(b.v) & top)));
}
template <class T> FB bool signbit(T x) {
  if constexpr (same_v<T, bool>) return false;
  else if constexpr (floating_v<T>) return bits_as<int_of<sizeof(T)>>(x) < 0;
  else return x < 0;
}
template <class T, int N> FB Mask<N> signbit(Vec<T, N> x) {
  if constexpr (floating_v<T>) return to_mask<N>(bits_as<raw<int_of<sizeof(T)>, N>>(x.v) < 0);
  else return to_mask<N>(x.v < 0);
}
template <class T> FB bool isinf(T x) { return abs(x) == (T)__builtin_inf(); }
template <class T, int N> FB Mask<N> isinf(Vec<T, N> x) { return eq(abs(x), Vec<T, N>((T)__builtin_inf())); }

template <class T> FB T divide(T a, T b) { return a / b; }
template <class T, int N> FB Vec<T, N> divide(Vec<T, N> a, Vec<T, N> b) { return Vec<T, N>(a.v / b.v); }

// Division by one number for all lanes: exact, by its reciprocal and one correction, where nothing comes near a limit.
template <class T, int N> FB Vec<T, N> divide_all(Vec<T, N> a, T b) { return divide(a, Vec<T, N>(b)); }
#if FB_AVX512
template <int N> FB Vec<float, N> divide_all(Vec<float, N> a, float b) {
  if constexpr (N != 16) return divide(a, Vec<float, N>(b));
  float size = __builtin_fabsf(b);
  if (__builtin_expect(!(size > 0x1p-60f && size < 0x1p60f), 0)) return divide(a, Vec<float, N>(b));
  Vec<float, N> r(1.0f / b), d(b), q = a * r;
  Vec<float, N> exact = fma(fma(-q, d, a), r, q), far = abs(q);
  Mask<N> zero = eq(a, Vec<float, N>(0.0f)),
          plain = gt(far, Vec<float, N>(0x1p-60f)) & lt(far, Vec<float, N>(0x1p120f));
  if (__builtin_expect(any_lane(~(plain | zero)), 0)) return divide(a, d);
  return select(zero, q, exact);
}
#endif

template <class V> FB V reciprocal(V x) { return divide(V(1), x); }
template <class V> FB V rsqrt(V x) { return divide(V(1), sqrt(x)); }
template <class V> FB V relu(V x) { return max_second(V(0), x); }  // -0.0 stays
template <class T, int N> FB Vec<T, N> sign(Vec<T, N> x) {
  return cast<T>(gt(x, Vec<T, N>((T)0))) - cast<T>(lt(x, Vec<T, N>((T)0)));
}
template <class T> FB T sign(T x) { return (T)((x > 0) - (x < 0)); }
FB bool sign(bool x) { return x; }

}  // namespace fb
