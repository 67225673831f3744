// Functions of float whose results are rounded to 16 bits at last: half the instructions or less. They err by less than
// 2^-17 of their result (the exponential by its argument times 2^-23 besides), and give 0 for results that are no
// normal numbers. Infinities and NaN are eager's.
#pragma once
#include "exponentials.hpp"

namespace fb {

// 2^z for z of at least -126; a polynomial (`c` without its last coefficient, which is 1) of what is above the whole
// number below z.
template <int N, class... C> FB f32v<N> rough_power(f32v<N> z, C... c) {
#if FB_AVX512
  if constexpr (N == 16) {
    f32v<N> part;
    asm("vreduceps $9, %1, %0" : "=v"(part.v) : "v"(z.v));
    return scale_by(poly(part, c..., 1.0f), z);
  } else
#endif
  {
    f32v<N> most = min_second(f32v<N>(128.0f), z), whole = floor(most);
    i32v<N> n(convert_raw<int32_t, N>(whole.v));
    return poly(most - whole, c..., 1.0f) * float_bits(i32v<N>((n.v + 127) << 23));
  }
}
template <int N> FB f32v<N> rough_power(f32v<N> z) {
  return rough_power(z, 0.0134266848f, 0.0522424728f, 0.241280198f, 0.693044841f);
}

template <int N> FB f32v<N> rough_exp(f32v<N> x) {
  f32v<N> z = x * f32v<N>(log2_e);
#if FB_AVX512
  if constexpr (N != 16)
#endif
    z = max_second(f32v<N>(-126.0f), z);
  return select(lt(x, f32v<N>(-87.33654f)), f32v<N>(0.0f), rough_power(z));
}
template <int N> FB f32v<N> rough_sigmoid(f32v<N> x) {
  return divide(f32v<N>(1.0f), f32v<N>(1.0f) + rough_power(max_second(f32v<N>(-126.0f), x * f32v<N>(-log2_e))));
}
// 1 - 2 / (e^2x + 1), but near 0, where that loses what is small, two terms of the series.
template <int N> FB f32v<N> rough_tanh(f32v<N> x) {
  f32v<N> e = rough_power(max_second(f32v<N>(-126.0f), x * f32v<N>(2.0f * log2_e)), 0.00186713017f, 0.00901702978f,
                          0.0557999127f, 0.240164444f, 0.693151295f);
  f32v<N> z = x * x, far = f32v<N>(1.0f) - divide(f32v<N>(2.0f), e + f32v<N>(1.0f));
  return select(lt(z, f32v<N>(0.00390625f)), x * fma(z, -0.333333333f, f32v<N>(1.0f)), far);
}

template <class T> FB T rough_exp(T x) { return exp(x); }
template <class T> FB T rough_sigmoid(T x) { return sigmoid(x); }
template <class T> FB T rough_tanh(T x) { return tanh(x); }

}  // namespace fb
