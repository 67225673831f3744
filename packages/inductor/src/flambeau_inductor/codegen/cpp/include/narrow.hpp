// bfloat16 and float16: their values live as float in registers, already rounded.
#pragma once
#include "vectors.hpp"

namespace fb {

template <int N> FB raw<uint32_t, N> bf16_bits(raw<float, N> x) {
  raw<uint32_t, N> u = bits_as<raw<uint32_t, N>>(x);
  raw<uint32_t, N> r = (u + (((u >> 16) & 1u) + 0x7fffu)) & 0xffff0000u;
  return x != x ? 0x7fc00000u + raw<uint32_t, N>{} : r;
}
FB float from_bits(uint32_t u) { return bits_as<float>(u); }
FB uint32_t to_bits(float x) { return bits_as<uint32_t>(x); }
FB float widen(bf16 x) { return from_bits((uint32_t)x.bits << 16); }
FB uint16_t bf16_of(float x) {
  uint32_t u = to_bits(x);
  return (u & 0x7fffffffu) > 0x7f800000u ? (uint16_t)0x7fc0 : (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}
FB float round_bf16(float x) { return from_bits((uint32_t)bf16_of(x) << 16); }
template <int N> FB Vec<float, N> round_bf16(Vec<float, N> x) {
  return Vec<float, N>(bits_as<raw<float, N>>(bf16_bits<N>(x.v)));
}

// The same where every NaN came from 16 bits: its low half is zero, so that rounding carries nothing into its exponent
// and sign.
template <int N> FB raw<uint32_t, N> bf16_bits_short(raw<float, N> x) {
  typedef raw<uint32_t, N> U;
  U u = bits_as<U>(x);
#if FB_AVX512
  if constexpr (N == 16) {
    typedef raw<int, 16> I;
    I up = (I)(u + 0x7fffu);
    return (U)__builtin_ia32_paddd512_mask(up, I{} + 1, up, __builtin_ia32_ptestmd512((I)u, I{} + 0x10000, -1)) &
           0xffff0000u;
  } else
#endif
    return (u + (((u >> 16) & 1u) + 0x7fffu)) & 0xffff0000u;
}
template <int N> FB Vec<float, N> round_bf16_short(Vec<float, N> x) {
  return Vec<float, N>(bits_as<raw<float, N>>(bf16_bits_short<N>(x.v)));
}
FB float round_bf16_short(float x) { return round_bf16(x); }

FB float widen(f16 x) { return (float)bits_as<_Float16>(x.bits); }
FB uint16_t f16_of(float x) { return bits_as<uint16_t>((_Float16)x); }
FB float round_f16(float x) { return (float)(_Float16)x; }
template <int N> FB raw<float, N> widen_f16(raw<uint16_t, N> h) {
  // clang-format off
#if FB_AVX512
  if constexpr (N == 16) return __builtin_ia32_vcvtph2ps512_mask((raw<short, 16>)h, (raw<float, 16>){}, -1, 4);
  else
#endif
#if FB_AVX2
  if constexpr (N == 8) return __builtin_ia32_vcvtph2ps256((raw<short, 8>)h);
  else
#endif
  // clang-format on
  {
    raw<float, N> r{};
    for (int k = 0; k < N; ++k) r[k] = widen(f16{h[k]});
    return r;
  }
}
template <int N> FB raw<uint16_t, N> narrow_f16(raw<float, N> x) {
  // clang-format off
#if FB_AVX512
  if constexpr (N == 16) return (raw<uint16_t, 16>)__builtin_ia32_vcvtps2ph512_mask(x, 0, (raw<short, 16>){}, -1);
  else
#endif
#if FB_AVX2
  if constexpr (N == 8) return (raw<uint16_t, 8>)__builtin_ia32_vcvtps2ph256(x, 0);
  else
#endif
  // clang-format on
  {
    raw<uint16_t, N> r{};
    for (int k = 0; k < N; ++k) r[k] = f16_of(x[k]);
    return r;
  }
}
template <int N> FB Vec<float, N> round_f16(Vec<float, N> x) { return Vec<float, N>(widen_f16<N>(narrow_f16<N>(x.v))); }

// What a value of type T is in registers: Held, a lane; Value, N of them.
template <class T> struct Held { typedef T type; };
template <> struct Held<bf16> { typedef float type; };
template <> struct Held<f16> { typedef float type; };
template <class T, int N> struct Value { typedef Vec<typename Held<T>::type, N> type; };
template <int N> struct Value<bool, N> { typedef Mask<N> type; };

}  // namespace fb
