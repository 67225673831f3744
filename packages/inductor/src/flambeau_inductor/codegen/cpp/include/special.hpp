// The error function and its inverse, the gamma functions, the next float.
#pragma once
#include "elementary.hpp"

namespace fb {

// A quotient of polynomials in x * x; exactly one from where float32 has nothing nearer: GELU multiplies what is
// missing by x. The processor's own division: there are enough products beside it to hide it, and doing it by products
// instead makes more of them (8.0 and 7.2 ns a register of GELU in bfloat16, Zen 5).
template <int N> FB f32v<N> erf(f32v<N> x) {
  f32v<N> a = abs(x), c = min_second(f32v<N>(3.925f), a), s = c * c;
  f32v<N> p = poly(s, -2.72614225801306e-10f, 2.77068142495902e-08f, -2.10102402082508e-06f, -5.69250639462346e-05f,
                   -7.34990630326855e-04f, -2.95459980854025e-03f, -1.60960333262415e-02f);
  f32v<N> q = poly(s, -1.45660718464996e-05f, -2.13374055278905e-04f, -1.68282697438203e-03f, -7.37332916720468e-03f,
                   -1.42647390514189e-02f);
  f32v<N> y = min_second(f32v<N>(1.0f), divide(c * p, q));
  return copysign(select(gt(a, f32v<N>(3.9192f)), f32v<N>(1.0f), y), x);
}

// clang-format off
FB_LIBRARY_1(erf) FB_LIBRARY_1(erfc) FB_LIBRARY_1(lgamma)
// clang-format on

// clang-format off
FB_LANES_1(erf, double) FB_LANES_1(erfc, double) FB_LANES_1(lgamma, double)
FB_LANES_1(erfc, float) FB_LANES_1(lgamma, float)
// clang-format on

FB_LIBRARY_2(nextafter)

// A quotient of polynomials, near zero in y * y and else in sqrt(-log((1 - |y|) / 2)), then two Newton steps on erf, or
// on erfc.
FB double erfinv(double y) {
  double a = __builtin_fabs(y), rest = 1.0 - a, x;
  if (!(a < 1.0)) return a == 1.0 ? __builtin_copysign(__builtin_inf(), y) : __builtin_nan("");
  if (a <= 0.7) {
    double z = y * y;
    x = y * (((-0.140543331 * z + 0.914624893) * z - 1.645349621) * z + 0.886226899) /
        ((((0.012229801 * z - 0.329097515) * z + 1.442710462) * z - 2.118377725) * z + 1.0);
    for (int k = 0; k < 2; ++k) x -= (__builtin_erf(x) - y) / (1.1283791670955126 * __builtin_exp(-x * x));
  } else {
    double z = __builtin_sqrt(-__builtin_log(rest / 2.0));
    x = (((1.641345311 * z + 3.429567803) * z - 1.624906493) * z - 1.970840454) /
        ((1.6370678 * z + 3.5438892) * z + 1.0);
    for (int k = 0; k < 3; ++k) x += (__builtin_erfc(x) - rest) / (1.1283791670955126 * __builtin_exp(-x * x));
    x = __builtin_copysign(x, y);
  }
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
  while (x < 10) {
    r -= 1 / x;
    x += 1;
  }
  if (x == 10) return r + 2.25175258906672110764;
  double z = 1 / (x * x), p = 8.33333333333333333333e-2;
  for (const double c :
       (const double[]){-2.10927960927960927961e-2, 7.57575757575757575758e-3, -4.16666666666666666667e-3,
                        3.96825396825396825397e-3, -8.33333333333333333333e-3, 8.33333333333333333333e-2})
    p = p * z + c;
  return r + __builtin_log(x) - 0.5 / x - (x < 1e17 ? z * p : 0);
}
FB float erfinv(float y) { return (float)erfinv((double)y); }
FB float digamma(float x) { return (float)digamma((double)x); }
// clang-format off
FB_LANES_1(erfinv, float) FB_LANES_1(erfinv, double) FB_LANES_1(digamma, float) FB_LANES_1(digamma, double)
// clang-format on

}  // namespace fb
