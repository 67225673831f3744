// Vector mathematics for float lanes (double lanes and scalars call the C library), in about 1 ulp, special values included.
#pragma once

namespace fb {

template <int N> using f32v = Vec<float, N>;
template <int N> using i32v = Vec<int32_t, N>;
template <int N> FB i32v<N> int_bits(f32v<N> x) { return bitcast<int32_t>(x); }
template <int N> FB f32v<N> float_bits(i32v<N> x) { return bitcast<float>(x); }
template <int N> FB f32v<N> horner(f32v<N>, f32v<N> acc) { return acc; }
template <int N, class... Rest> FB f32v<N> horner(f32v<N> x, f32v<N> acc, float c, Rest... rest) {
  return horner(x, fma(acc, x, f32v<N>(c)), rest...);
}
template <int N, class... Rest> FB f32v<N> poly(f32v<N> x, float c, Rest... rest) { return horner(x, f32v<N>(c), rest...); }

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

constexpr float log2_e = 1.44269504088896341f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;

template <int N> FB bool any_lane(Mask<N> m) { return lane_bits(m) != 0; }
// e^x; a result below the smallest normal number is zero, since denormals take a slow path of the processor at each lane.
template <int N> FB f32v<N> exp_normal(f32v<N> x) {
  f32v<N> c = max_second(f32v<N>(-87.33654f), min_second(f32v<N>(89.0f), x));
  f32v<N> n = round_even(c * f32v<N>(log2_e));
  f32v<N> r = fma(n, -ln2_high, c);
  r = fma(n, -ln2_low, r);
  f32v<N> p = poly(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f);
  f32v<N> y = fma(p, r * r, r) + f32v<N>(1.0f);
  return scale_by(y, n);
}
template <int N> FB f32v<N> exp(f32v<N> x) { return select(lt(x, f32v<N>(-87.33654f)), f32v<N>(0.0f), exp_normal(x)); }
template <int N> FB f32v<N> exp2(f32v<N> x) {
  f32v<N> c = max_second(f32v<N>(-151.0f), min_second(f32v<N>(129.0f), x));
  f32v<N> n = round_even(c);
  f32v<N> r = (c - n) * f32v<N>(0.693147180559945f);
  f32v<N> p = poly(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f);
  f32v<N> y = fma(p, r * r, r) + f32v<N>(1.0f);
  return scale_by(y, n);
}
// 2^n * (e^r - 1) + (2^n - 1): no cancellation near zero.
template <int N> FB f32v<N> expm1(f32v<N> x) {
  f32v<N> c = max_second(f32v<N>(-30.0f), min_second(f32v<N>(88.8f), x));
  f32v<N> n = round_even(c * f32v<N>(log2_e));
  f32v<N> r = fma(n, -ln2_high, c);
  r = fma(n, -ln2_low, r);
  f32v<N> p = poly(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f);
  f32v<N> q = fma(p, r * r, r);
  f32v<N> half = scale_by(f32v<N>(0.5f), n);
  f32v<N> y = fma(half, q, half - f32v<N>(0.5f)) * f32v<N>(2.0f);
  y = select(gt(x, f32v<N>(88.72284f)), f32v<N>(__builtin_inff()), y);
  return select(eq(x, f32v<N>(0.0f)), x, y);
}
template <int N> FB f32v<N> operator/(f32v<N> a, f32v<N> b) { return divide(a, b); }
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
  f32v<N> p = poly(f, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f, -1.6668057665e-1f,
                   2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f);
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

// A quotient of polynomials in x * x on [-3.9, 3.9], constant outside.
template <int N> FB f32v<N> erf(f32v<N> x) {
  f32v<N> c = max_second(f32v<N>(-3.925f), min_second(f32v<N>(3.925f), x));
  f32v<N> s = c * c;
  f32v<N> p = poly(s, -2.72614225801306e-10f, 2.77068142495902e-08f, -2.10102402082508e-06f, -5.69250639462346e-05f, -7.34990630326855e-04f,
                   -2.95459980854025e-03f, -1.60960333262415e-02f);
  f32v<N> q = poly(s, -1.45660718464996e-05f, -2.13374055278905e-04f, -1.68282697438203e-03f, -7.37332916720468e-03f, -1.42647390514189e-02f);
  f32v<N> y = divide_safe(c * p, q);
  return max_second(f32v<N>(-1.0f), min_second(f32v<N>(1.0f), y));
}

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
template <int N> __attribute__((noinline)) f32v<N> sin_slow(f32v<N> x) { return each([](float v) { return __builtin_sinf(v); }, x); }
template <int N> __attribute__((noinline)) f32v<N> cos_slow(f32v<N> x) { return each([](float v) { return __builtin_cosf(v); }, x); }
template <int N> FB f32v<N> sin(f32v<N> x) {
  if (__builtin_expect(any_lane(~lt(abs(x), f32v<N>(20000.0f))), 0)) return sin_slow(x);
  return select(eq(x, f32v<N>(0.0f)), x, sine_at(x, 0));
}
template <int N> FB f32v<N> cos(f32v<N> x) {
  if (__builtin_expect(any_lane(~lt(abs(x), f32v<N>(20000.0f))), 0)) return cos_slow(x);
  return sine_at(x, 1);
}

// Division by one number for all lanes: exact, by its reciprocal and one correction, where nothing comes near a limit.
template <class T, int N> FB Vec<T, N> divide_all(Vec<T, N> a, T b) { return divide(a, Vec<T, N>(b)); }
#if FB_AVX512
template <int N> FB f32v<N> divide_all(f32v<N> a, float b) {
  if constexpr (N != 16) return divide(a, f32v<N>(b));
  float size = __builtin_fabsf(b);
  if (__builtin_expect(!(size > 0x1p-60f && size < 0x1p60f), 0)) return divide(a, f32v<N>(b));
  f32v<N> r(1.0f / b), d(b), q = a * r;
  f32v<N> exact = fma(fma(-q, d, a), r, q), far = abs(q);
  Mask<N> zero = eq(a, f32v<N>(0.0f)), plain = gt(far, f32v<N>(0x1p-60f)) & lt(far, f32v<N>(0x1p120f));
  if (__builtin_expect(any_lane(~(plain | zero)), 0)) return divide(a, d);
  return select(zero, q, exact);
}
#endif

template <class V> FB V reciprocal(V x) { return divide(V(1), x); }
template <class V> FB V rsqrt(V x) { return divide(V(1), sqrt(x)); }
template <class V> FB V square(V x) { return (V)(x * x); }
template <class V> FB V relu(V x) { return maximum(x, V(0)); }
template <class T, int N> FB Vec<T, N> sign(Vec<T, N> x) { return cast<T>(gt(x, Vec<T, N>((T)0))) - cast<T>(lt(x, Vec<T, N>((T)0))); }
template <class T> FB T sign(T x) { return (T)((x > 0) - (x < 0)); }
FB bool sign(bool x) { return x; }

// Everything else: the C library, a lane at a time for vectors.
#define FB_LIBRARY_1(NAME)                                                                                     \
  FB float NAME(float x) { return __builtin_##NAME##f(x); }                                                    \
  FB double NAME(double x) { return __builtin_##NAME(x); }
#define FB_LANES_1(NAME, T)                                                                                    \
  template <int N> FB Vec<T, N> NAME(Vec<T, N> x) { return each([](T v) { return NAME(v); }, x); }
#define FB_LIBRARY_2(NAME)                                                                                     \
  FB float NAME(float x, float y) { return __builtin_##NAME##f(x, y); }                                        \
  FB double NAME(double x, double y) { return __builtin_##NAME(x, y); }                                        \
  template <class T, int N> FB Vec<T, N> NAME(Vec<T, N> x, Vec<T, N> y) {                                      \
    return each([](T v, T w) { return NAME(v, w); }, x, y);                                                    \
  }
FB_LIBRARY_1(exp) FB_LIBRARY_1(exp2) FB_LIBRARY_1(expm1) FB_LIBRARY_1(log) FB_LIBRARY_1(log2) FB_LIBRARY_1(log10) FB_LIBRARY_1(log1p)
FB_LIBRARY_1(tanh) FB_LIBRARY_1(erf) FB_LIBRARY_1(sin) FB_LIBRARY_1(cos) FB_LIBRARY_1(erfc) FB_LIBRARY_1(tan) FB_LIBRARY_1(asin)
FB_LIBRARY_1(acos) FB_LIBRARY_1(atan) FB_LIBRARY_1(sinh) FB_LIBRARY_1(cosh) FB_LIBRARY_1(asinh) FB_LIBRARY_1(acosh) FB_LIBRARY_1(atanh)
FB_LIBRARY_1(lgamma)
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
template <int N> FB Vec<double, N> exp(Vec<double, N> x) {
  typedef Vec<double, N> V;
  V c = max_second(V(-708.0), min_second(V(710.0), x));
  V n = round_even(c * V(1.4426950408889634074));
  V r = fma(n, V(-6.93147180369123816490e-01), c);
  r = fma(n, V(-1.90821492927058770002e-10), r);
  V p = poly_d(r, V(1.0 / 6227020800.0), 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0, 1.0 / 40320.0, 1.0 / 5040.0, 1.0 / 720.0,
               1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5);
  return select(lt(x, V(-708.0)), V(0.0), times_2_to(fma(p, r * r, r) + V(1.0), n));
}
FB_LANES_1(exp2, double) FB_LANES_1(expm1, double) FB_LANES_1(log, double) FB_LANES_1(log2, double)
FB_LANES_1(log10, double) FB_LANES_1(log1p, double) FB_LANES_1(tanh, double) FB_LANES_1(erf, double) FB_LANES_1(sin, double) FB_LANES_1(cos, double)
FB_LANES_1(erfc, double) FB_LANES_1(tan, double) FB_LANES_1(asin, double) FB_LANES_1(acos, double) FB_LANES_1(atan, double)
FB_LANES_1(sinh, double) FB_LANES_1(cosh, double) FB_LANES_1(asinh, double) FB_LANES_1(acosh, double) FB_LANES_1(atanh, double)
FB_LANES_1(lgamma, double)
FB_LANES_1(erfc, float) FB_LANES_1(tan, float) FB_LANES_1(asin, float) FB_LANES_1(acos, float) FB_LANES_1(atan, float)
FB_LANES_1(sinh, float) FB_LANES_1(cosh, float) FB_LANES_1(asinh, float) FB_LANES_1(acosh, float) FB_LANES_1(atanh, float)
FB_LANES_1(lgamma, float)
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
  Mask<N> plain = ge(x, f32v<N>(1.17549435e-38f)) & lt(x, f32v<N>(__builtin_inff())) & lt(abs(y), f32v<N>(__builtin_inff()));
  if (__builtin_expect(any_lane(~plain), 0)) return pow_special(x, y);
  if constexpr (N == register_bytes / 4) {
    Vec<float, N / 2> low = pow_double(low_half(x), low_half(y)), high = pow_double(high_half(x), high_half(y));
    return join(low, high);
  } else return pow_double(x, y);
}
FB_LIBRARY_2(atan2) FB_LIBRARY_2(hypot) FB_LIBRARY_2(nextafter)
template <class T> FB T sigmoid(T x) { return (T)1 / ((T)1 + exp(-x)); }
FB_LANES_1(sigmoid, double)
// Integer powers as eager: by squaring, a negative exponent gives 1, -1 or 0.
template <class T> FB T ipow(T a, T b) {
  if (b < 0) return a == 1 ? (T)1 : (a == (T)-1 ? ((b & 1) ? (T)-1 : (T)1) : (T)0);
  uint64_t r = 1, base = (uint64_t)a, n = (uint64_t)b;
  for (; n; n >>= 1) { if (n & 1) r *= base; base *= base; }
  return (T)r;
}
template <class T, int N> FB Vec<T, N> ipow(Vec<T, N> a, Vec<T, N> b) { return each([](T x, T y) { return ipow(x, y); }, a, b); }

// Giles' approximation, then two Newton steps on erf.
FB double erfinv(double y) {
  if (!(y > -1.0 && y < 1.0)) return y == 1.0 ? __builtin_inf() : (y == -1.0 ? -__builtin_inf() : __builtin_nan(""));
  double w = -__builtin_log((1.0 - y) * (1.0 + y)), x;
  if (w < 5.0) {
    w -= 2.5;
    x = 2.81022636e-08;
    for (const double c : (const double[]){3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941}) x = c + x * w;
  } else {
    w = __builtin_sqrt(w) - 3.0;
    x = -0.000200214257;
    for (const double c : (const double[]){0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682}) x = c + x * w;
  }
  x *= y;
  for (int k = 0; k < 2; ++k) x -= (__builtin_erf(x) - y) / (1.1283791670955126 * __builtin_exp(-x * x));
  return x;
}
FB double digamma(double x) {
  if (x == 0) return __builtin_copysign(__builtin_inf(), -x);
  double r = 0;
  if (x < 0) {
    if (x == __builtin_trunc(x)) return __builtin_nan("");
    double q = x - __builtin_trunc(x);
    r = -3.14159265358979323846 / __builtin_tan(3.14159265358979323846 * q);
    x = 1 - x;
  }
  while (x < 10) { r -= 1 / x; x += 1; }
  if (x == 10) return r + 2.25175258906672110764;
  double z = 1 / (x * x), p = 8.33333333333333333333e-2;
  for (const double c : (const double[]){-2.10927960927960927961e-2, 7.57575757575757575758e-3, -4.16666666666666666667e-3, 3.96825396825396825397e-3, -8.33333333333333333333e-3, 8.33333333333333333333e-2}) p = p * z + c;
  return r + __builtin_log(x) - 0.5 / x - (x < 1e17 ? z * p : 0);
}
FB float erfinv(float y) { return (float)erfinv((double)y); }
FB float digamma(float x) { return (float)digamma((double)x); }
FB_LANES_1(erfinv, float) FB_LANES_1(erfinv, double) FB_LANES_1(digamma, float) FB_LANES_1(digamma, double)
template <class V> FB V logaddexp(V a, V b) {
  V high = maximum(a, b);
  return select(isinf(a) & eq(a, b), a, high + log1p(exp(-abs(a - b))));
}

}  // namespace fb
