// Which lanes are live: a predicate is Full (every one) or Lanes<N> (a bit a lane). Dead lanes are neither read nor
// written.
#pragma once
#include "vectors.hpp"

namespace fb {

struct Full {};
template <int N> struct Lanes { uint32_t bits; };
template <int N> FB Lanes<N> first(int64_t n) { return Lanes<N>{(uint32_t)((1ull << n) - 1)}; }
template <int N> FB uint32_t lane_bits(Mask<N> m) {
#if FB_AVX512
  if constexpr (sizeof(m.v) == 64 && N == 16) return __builtin_ia32_cvtd2mask512(m.v);
  else if constexpr (sizeof(m.v) == 64 && N == 8) return __builtin_ia32_cvtq2mask512((raw<long long, 8>)m.v);
  else
#elif FB_AVX2
  if constexpr (sizeof(m.v) == 32 && N == 8) return __builtin_ia32_movmskps256((raw<float, 8>)m.v);
  else if constexpr (sizeof(m.v) == 32 && N == 4) return __builtin_ia32_movmskpd256((raw<double, 4>)m.v);
  else
#endif
  {
    uint32_t r = 0;
    for (int k = 0; k < N; ++k) r |= (uint32_t)(m.v[k] != 0) << k;
    return r;
  }
}
template <int N> FB Lanes<N> both(Full, Mask<N> m) { return Lanes<N>{lane_bits(m)}; }
template <int N> FB Lanes<N> both(Lanes<N> t, Mask<N> m) { return Lanes<N>{t.bits & lane_bits(m)}; }
template <int N> FB Mask<N> lane_mask(Full) { return Mask<N>(true); }
template <int N> FB Mask<N> lane_mask(Lanes<N> t) {
  Mask<N> r;
  for (int k = 0; k < N; ++k) r.v[k] = 1 << k;
  r.v = (r.v & (mask_lane<N>)t.bits) != 0;
  return r;
}

template <int N> FB bool any_lane(Mask<N> m) { return lane_bits(m) != 0; }

// A new accumulator where lanes are live, the old one elsewhere.
template <int N, class V> FB V keep(Full, V fresh, V) { return fresh; }
template <int N, class V> FB V keep(Lanes<N> t, V fresh, V old) { return select(lane_mask<N>(t), fresh, old); }

// Whether a live lane's position is outside [0, size).
template <int N, class P> FB bool outside(Vec<int64_t, N> i, int64_t size, P t) {
  return lane_bits(to_mask<N>((raw<uint64_t, N>)i.v >= (raw<uint64_t, N>)Vec<int64_t, N>(size).v) & lane_mask<N>(t)) !=
         0;
}
FB bool outside(int64_t i, int64_t size) { return (uint64_t)i >= (uint64_t)size; }

}  // namespace fb
