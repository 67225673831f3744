// Sines, their inverses and hyperbolic kin, angles and lengths. sin and cos of float lanes are ours, the rest is the C
// library.
#pragma once
#include "elementary.hpp"

namespace fb {

// Sine and cosine: reduction by pi/2 in three parts, the C library where an argument is too large for it.
template <int N> FB f32v<N> sine_at(f32v<N> x, int quarter) {
  f32v<N> n = round_even(x * f32v<N>(0.636619772367581f));
  f32v<N> r = fma(n, -1.5707962512969971f, x);
  r = fma(n, -7.5497894158615964e-8f, r);
  r = fma(n, -5.3903029534742384e-15f, r);
  i32v<N> q = i32v<N>(convert_raw<int32_t, N>(n.v) + quarter);
  f32v<N> z = r * r;
  f32v<N> s = fma(poly(z, 2.86567956e-6f, -1.98559923e-4f, 8.33338592e-3f, -1.66666672e-1f), z * r, r);
  f32v<N> c = fma(poly(z, 2.44677067e-5f, -1.38877297e-3f, 4.16666567e-2f, -5.00000000e-1f), z, f32v<N>(1.0f));
  f32v<N> y = select(to_mask<N>((q.v & 1) != 0), c, s);
  return float_bits(i32v<N>(int_bits(y).v ^ ((q.v & 2) << 30)));
}
template <int N> __attribute__((noinline)) f32v<N> sin_slow(f32v<N> x) {
  return each([](float v) { return __builtin_sinf(v); }, x);
}
template <int N> __attribute__((noinline)) f32v<N> cos_slow(f32v<N> x) {
  return each([](float v) { return __builtin_cosf(v); }, x);
}
template <int N> FB f32v<N> sin(f32v<N> x) {
  if (__builtin_expect(any_lane(~lt(abs(x), f32v<N>(20000.0f))), 0)) return sin_slow(x);
  return select(eq(x, f32v<N>(0.0f)), x, sine_at(x, 0));
}
template <int N> FB f32v<N> cos(f32v<N> x) {
  if (__builtin_expect(any_lane(~lt(abs(x), f32v<N>(20000.0f))), 0)) return cos_slow(x);
  return sine_at(x, 1);
}

// clang-format off
FB_LIBRARY_1(sin) FB_LIBRARY_1(cos) FB_LIBRARY_1(tan) FB_LIBRARY_1(asin) FB_LIBRARY_1(acos) FB_LIBRARY_1(atan)
FB_LIBRARY_1(sinh) FB_LIBRARY_1(cosh) FB_LIBRARY_1(asinh) FB_LIBRARY_1(acosh) FB_LIBRARY_1(atanh)
// clang-format on

// clang-format off
FB_LANES_1(sin, double) FB_LANES_1(cos, double) FB_LANES_1(tan, double) FB_LANES_1(asin, double)
FB_LANES_1(acos, double) FB_LANES_1(atan, double) FB_LANES_1(sinh, double) FB_LANES_1(cosh, double)
FB_LANES_1(asinh, double) FB_LANES_1(acosh, double) FB_LANES_1(atanh, double)
// clang-format on

// clang-format off
FB_LANES_1(tan, float) FB_LANES_1(asin, float) FB_LANES_1(acos, float) FB_LANES_1(atan, float) FB_LANES_1(sinh, float)
FB_LANES_1(cosh, float) FB_LANES_1(asinh, float) FB_LANES_1(acosh, float) FB_LANES_1(atanh, float)
// clang-format on

// clang-format off
FB_LIBRARY_2(atan2) FB_LIBRARY_2(hypot)
// clang-format on

}  // namespace fb
