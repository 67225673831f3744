// Exponentials, logarithms, powers and the functions made of them: float lanes in about 1 ulp, special values included;
// double lanes (but those of exp) and single values call the C library.
#pragma once
#include "elementary.hpp"
#include "halves.hpp"

namespace fb {

constexpr float log2_e = 1.44269504088896341f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;

// e^x; a result below the smallest normal number is zero, since denormals take a slow path of the processor at each
// lane.
template <int N> FB f32v<N> exp_normal(f32v<N> x) {
  f32v<N> c = max_second(f32v<N>(-87.33654f), min_second(f32v<N>(89.0f), x));
  f32v<N> n = round_even(c * f32v<N>(log2_e));
  f32v<N> r = fma(n, -ln2_high, c);
  r = fma(n, -ln2_low, r);
  f32v<N> p = poly(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                   5.0000001201e-1f);
  f32v<N> y = fma(p, r * r, r) + f32v<N>(1.0f);
  return scale_by(y, n);
}
template <int N> FB f32v<N> exp(f32v<N> x) { return select(lt(x, f32v<N>(-87.33654f)), f32v<N>(0.0f), exp_normal(x)); }
template <int N> FB f32v<N> exp2(f32v<N> x) {
  f32v<N> c = max_second(f32v<N>(-151.0f), min_second(f32v<N>(129.0f), x));
  f32v<N> n = round_even(c);
  f32v<N> r = (c - n) * f32v<N>(0.693147180559945f);
  f32v<N> p = poly(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                   5.0000001201e-1f);
  f32v<N> y = fma(p, r * r, r) + f32v<N>(1.0f);
  return scale_by(y, n);
}
// 2^n * (e^r - 1) + (2^n - 1): no cancellation near zero.
template <int N> FB f32v<N> expm1(f32v<N> x) {
  f32v<N> c = max_second(f32v<N>(-30.0f), min_second(f32v<N>(88.8f), x));
  f32v<N> n = round_even(c * f32v<N>(log2_e));
  f32v<N> r = fma(n, -ln2_high, c);
  r = fma(n, -ln2_low, r);
  f32v<N> p = poly(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                   5.0000001201e-1f);
  f32v<N> q = fma(p, r * r, r);
  f32v<N> half = scale_by(f32v<N>(0.5f), n);
  f32v<N> y = fma(half, q, half - f32v<N>(0.5f)) * f32v<N>(2.0f);
  y = select(gt(x, f32v<N>(88.72284f)), f32v<N>(__builtin_inff()), y);
  return select(eq(x, f32v<N>(0.0f)), x, y);
}

template <int N> __attribute__((noinline)) f32v<N> sigmoid_tail(f32v<N> x) {
  return each([](float v) { return 1.0f / (1.0f + __builtin_expf(-v)); }, x);
}
template <int N> FB f32v<N> sigmoid(f32v<N> x) {
  if (__builtin_expect(any_lane(lt(x, f32v<N>(-86.0f))), 0)) return sigmoid_tail(x);
  f32v<N> e = exp_normal(-x);
  return divide_safe(f32v<N>(1.0f), f32v<N>(1.0f) + e);
}
template <int N> FB f32v<N> tanh(f32v<N> x) {
  f32v<N> t = min_second(f32v<N>(10.0f), abs(x));
  f32v<N> e = expm1(t + t);
  f32v<N> y = divide_safe(e, e + f32v<N>(2.0f));
  return select(isnan(x), x, copysign(y, x));
}

// log(x) for x = 2^e * m, m in [sqrt(1/2), sqrt(2)); `low` is a correction added to m - 1.
template <int N> FB f32v<N> log_core(f32v<N> x, f32v<N> low) {
  Mask<N> tiny = lt(x, f32v<N>(1.17549435e-38f));
  f32v<N> scaled = select(tiny, x * f32v<N>(8388608.0f), x);
  i32v<N> bits = int_bits(scaled);
  i32v<N> e = i32v<N>((bits.v - 0x3f3504f3) >> 23);
  f32v<N> m = float_bits(i32v<N>(bits.v - (e.v << 23)));
  f32v<N> n = f32v<N>(convert_raw<float, N>(e.v)) - select(tiny, f32v<N>(23.0f), f32v<N>(0.0f));
  f32v<N> f = m - f32v<N>(1.0f) + low;
  f32v<N> z = f * f;
  f32v<N> p = poly(f, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                   -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f);
  f32v<N> y = p * f * z;
  y = fma(n, ln2_low, y);
  y = fma(z, -0.5f, y);
  return fma(n, ln2_high, f + y);
}
template <int N> FB f32v<N> log_special(f32v<N> x, f32v<N> y) {
  f32v<N> inf = f32v<N>(__builtin_inff());
  y = select(eq(x, inf), inf, y);
  y = select(eq(x, f32v<N>(0.0f)), -inf, y);
  return select(lt(x, f32v<N>(0.0f)) | isnan(x), f32v<N>(__builtin_nanf("")), y);
}
template <int N> FB f32v<N> log(f32v<N> x) { return log_special(x, log_core(x, f32v<N>(0.0f))); }
template <int N> FB f32v<N> log2(f32v<N> x) {
  f32v<N> y = log(x), n = round_even(y * f32v<N>(log2_e));
  f32v<N> exact = scale_by(f32v<N>(1.0f), max_second(f32v<N>(-149.0f), min_second(f32v<N>(127.0f), n)));
  return select(eq(exact, x), n, y * f32v<N>(log2_e));
}
template <int N> FB f32v<N> log10(f32v<N> x) { return log(x) * f32v<N>(0.434294481903252f); }
template <int N> FB f32v<N> log1p(f32v<N> x) {
  f32v<N> u = x + f32v<N>(1.0f);
  f32v<N> lost = select(gt(x, f32v<N>(1.0f)), f32v<N>(1.0f) - (u - x), x - (u - f32v<N>(1.0f)));
  f32v<N> y = log_core(u, f32v<N>(0.0f)) + divide(lost, u);
  return select(eq(u, f32v<N>(1.0f)), x, log_special(u, y));
}

// clang-format off
FB_LIBRARY_1(exp) FB_LIBRARY_1(exp2) FB_LIBRARY_1(expm1) FB_LIBRARY_1(log) FB_LIBRARY_1(log2)
FB_LIBRARY_1(log10) FB_LIBRARY_1(log1p) FB_LIBRARY_1(tanh)
// clang-format on

template <int N> FB Vec<double, N> exp(Vec<double, N> x) {
  typedef Vec<double, N> V;
  V c = max_second(V(-708.0), min_second(V(710.0), x));
  V n = round_even(c * V(1.4426950408889634074));
  V r = fma(n, V(-6.93147180369123816490e-01), c);
  r = fma(n, V(-1.90821492927058770002e-10), r);
  V p = poly_d(r, V(1.0 / 6227020800.0), 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0,
               1.0 / 40320.0, 1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5);
  return select(lt(x, V(-708.0)), V(0.0), times_2_to(fma(p, r * r, r) + V(1.0), n));
}

// clang-format off
FB_LANES_1(exp2, double) FB_LANES_1(expm1, double) FB_LANES_1(log, double) FB_LANES_1(log2, double)
FB_LANES_1(log10, double) FB_LANES_1(log1p, double) FB_LANES_1(tanh, double)
// clang-format on

template <class T> FB T sigmoid(T x) { return (T)1 / ((T)1 + exp(-x)); }
FB_LANES_1(sigmoid, double)

FB float pow(float x, float y) { return __builtin_powf(x, y); }
FB double pow(double x, double y) { return __builtin_pow(x, y); }
template <int N> FB Vec<double, N> pow(Vec<double, N> x, Vec<double, N> y) {
  return each([](double v, double w) { return __builtin_pow(v, w); }, x, y);
}
template <int N> __attribute__((noinline)) f32v<N> pow_special(f32v<N> x, f32v<N> y) {
  return each([](float v, float w) { return __builtin_powf(v, w); }, x, y);
}
// x^y = 2^(y log2 x) in double, for positive normal x and finite results; the rest goes to the C library.
template <int N> FB Vec<float, N> pow_double(Vec<float, N> x, Vec<float, N> y) {
  typedef Vec<double, N> V;
  raw<int32_t, N> bits = bits_as<raw<int32_t, N>>(x.v);
  raw<int32_t, N> e = (bits - 0x3f3504f3) >> 23;
  V m(convert_raw<double, N>(bits_as<raw<float, N>>(bits - (e << 23))));
  V n(convert_raw<double, N>(e)), s = divide(m - V(1.0), m + V(1.0)), z = s * s;
  V p = poly_d(z, V(2.0 / 15), 2.0 / 13, 2.0 / 11, 2.0 / 9, 2.0 / 7, 2.0 / 5, 2.0 / 3, 2.0);
  V t = fma(p * s, V(1.4426950408889634074), n) * V(convert_raw<double, N>(y.v));
  t = max_second(V(-1000.0), min_second(V(1000.0), t));
  V k = round_even(t), f = (t - k) * V(0.69314718055994530942);
  V q = poly_d(f, V(1.0 / 40320), 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0);
  return Vec<float, N>(convert_raw<float, N>(times_2_to(q, k).v));
}
template <int N> FB f32v<N> pow(f32v<N> x, f32v<N> y) {
  Mask<N> plain =
      ge(x, f32v<N>(1.17549435e-38f)) & lt(x, f32v<N>(__builtin_inff())) & lt(abs(y), f32v<N>(__builtin_inff()));
  if (__builtin_expect(any_lane(~plain), 0)) return pow_special(x, y);
  if constexpr (N == register_bytes / 4) {
    Vec<float, N / 2> low = pow_double(low_half(x), low_half(y)), high = pow_double(high_half(x), high_half(y));
    return join(low, high);
  } else return pow_double(x, y);
}

template <class V> FB V logaddexp(V a, V b) {
  V high = maximum(a, b);
  return select(isinf(a) & eq(a, b), a, high + log1p(exp(-abs(a - b))));
}

}  // namespace fb
