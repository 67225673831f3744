// What the elementary functions are made of: polynomials, powers of two, the C library a lane at a time.
#pragma once
#include "arithmetic.hpp"

namespace fb {

template <int N> using f32v = Vec<float, N>;
template <int N> using i32v = Vec<int32_t, N>;
template <int N> FB i32v<N> int_bits(f32v<N> x) { return bitcast<int32_t>(x); }
template <int N> FB f32v<N> float_bits(i32v<N> x) { return bitcast<float>(x); }
template <int N> FB f32v<N> horner(f32v<N>, f32v<N> acc) { return acc; }
template <int N, class... Rest> FB f32v<N> horner(f32v<N> x, f32v<N> acc, float c, Rest... rest) {
  return horner(x, fma(acc, x, f32v<N>(c)), rest...);
}
template <int N, class... Rest> FB f32v<N> poly(f32v<N> x, float c, Rest... rest) {
  return horner(x, f32v<N>(c), rest...);
}

// x * 2^n, in two steps so that denormal results come out rounded once.
template <int N> FB f32v<N> scale_by(f32v<N> x, f32v<N> whole) {
#if FB_AVX512
  if constexpr (N == 16) return f32v<N>(__builtin_ia32_scalefps512_mask(x.v, whole.v, x.v, -1, 4));
  else
#endif
  {
    i32v<N> n(convert_raw<int32_t, N>(whole.v)), half(n.v >> 1), rest = n - half;
    f32v<N> a = float_bits(i32v<N>((half.v + 127) << 23)), b = float_bits(i32v<N>((rest.v + 127) << 23));
    return x * a * b;
  }
}

// a / b within an ulp, for b whose reciprocal is far from overflow and underflow.
template <int N> FB f32v<N> divide_safe(f32v<N> a, f32v<N> b) {
#if FB_AVX512
  if constexpr (N == 16) {
    f32v<N> r(__builtin_ia32_rcp14ps512_mask(b.v, b.v, -1));
    r = fma(r, fma(-b, r, f32v<N>(1.0f)), r);
    f32v<N> q = a * r;
    return fma(fma(-q, b, a), r, q);
  } else
#endif
    return divide(a, b);
}

template <int N> FB Vec<double, N> poly_d(Vec<double, N>, Vec<double, N> acc) { return acc; }
template <int N, class... Rest> FB Vec<double, N> poly_d(Vec<double, N> x, Vec<double, N> acc, double c, Rest... rest) {
  return poly_d(x, fma(acc, x, Vec<double, N>(c)), rest...);
}
template <int N> FB Vec<double, N> times_2_to(Vec<double, N> x, Vec<double, N> n) {
#if FB_AVX512
  if constexpr (N == 8) return Vec<double, N>(__builtin_ia32_scalefpd512_mask(x.v, n.v, x.v, -1, 4));
  else
#endif
  {
    raw<int64_t, N> k = convert_raw<int64_t, N>(n.v), half = k >> 1;
    Vec<double, N> a(bits_as<raw<double, N>>((half + 1023) << 52)), b(bits_as<raw<double, N>>((k - half + 1023) << 52));
    return x * a * b;
  }
}

// The C library.
#define FB_LIBRARY_1(NAME) \
  FB float NAME(float x) { return __builtin_##NAME##f(x); } \
  FB double NAME(double x) { return __builtin_##NAME(x); }
#define FB_LANES_1(NAME, T) \
  template <int N> FB Vec<T, N> NAME(Vec<T, N> x) { \
    return each([](T v) { return NAME(v); }, x); \
  }
#define FB_LIBRARY_2(NAME) \
  FB float NAME(float x, float y) { return __builtin_##NAME##f(x, y); } \
  FB double NAME(double x, double y) { return __builtin_##NAME(x, y); } \
  template <class T, int N> FB Vec<T, N> NAME(Vec<T, N> x, Vec<T, N> y) { \
    return each([](T v, T w) { return NAME(v, w); }, x, y); \
  }

}  // namespace fb
