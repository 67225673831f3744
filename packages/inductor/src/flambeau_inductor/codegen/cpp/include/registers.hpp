// Registers of N lanes as the compiler knows them, and conversions between them.
#pragma once
#include "base.hpp"

namespace fb {

template <class T, int N> struct Raw { typedef T type __attribute__((vector_size(N * sizeof(T)))); };
template <class T, int N> using raw = typename Raw<T, N>::type;
template <int N> using mask_lane = int_of<(register_bytes / N > 8 ? 8 : register_bytes / N)>;

// Conversions of whole registers that the compiler splits into halves or moves a lane at a time on its own.
template <class To, class From> FB To converted(From x, Tag<To>) { return __builtin_convertvector(x, To); }
#if FB_AVX512
#define FB_CONVERT(TO, FROM, N, BUILTIN, BARE_TO, BARE_FROM) \
  FB raw<TO, N> converted(raw<FROM, N> x, Tag<raw<TO, N>>) { \
    return (raw<TO, N>)BUILTIN((raw<BARE_FROM, N>)x, raw<BARE_TO, N>{}, -1); \
  }
#define FB_CONVERT_BOTH(BITS, FROM, N, BUILTIN, BARE_TO, BARE_FROM) \
  FB_CONVERT(int##BITS##_t, FROM, N, BUILTIN, BARE_TO, BARE_FROM) \
  FB_CONVERT(uint##BITS##_t, FROM, N, BUILTIN, BARE_TO, BARE_FROM)
FB_CONVERT_BOTH(32, int8_t, 16, __builtin_ia32_pmovsxbd512_mask, int, char)
FB_CONVERT_BOTH(32, uint8_t, 16, __builtin_ia32_pmovzxbd512_mask, int, char)
FB_CONVERT_BOTH(32, int16_t, 16, __builtin_ia32_pmovsxwd512_mask, int, short)
FB_CONVERT_BOTH(32, uint16_t, 16, __builtin_ia32_pmovzxwd512_mask, int, short)
FB_CONVERT_BOTH(64, int32_t, 8, __builtin_ia32_pmovsxdq512_mask, long long, int)
FB_CONVERT_BOTH(64, uint32_t, 8, __builtin_ia32_pmovzxdq512_mask, long long, int)
FB_CONVERT_BOTH(8, int32_t, 16, __builtin_ia32_pmovdb512_mask, char, int)
FB_CONVERT_BOTH(8, uint32_t, 16, __builtin_ia32_pmovdb512_mask, char, int)
FB_CONVERT_BOTH(16, int32_t, 16, __builtin_ia32_pmovdw512_mask, short, int)
FB_CONVERT_BOTH(16, uint32_t, 16, __builtin_ia32_pmovdw512_mask, short, int)
FB_CONVERT_BOTH(32, int64_t, 8, __builtin_ia32_pmovqd512_mask, int, long long)
FB_CONVERT_BOTH(32, uint64_t, 8, __builtin_ia32_pmovqd512_mask, int, long long)
FB_CONVERT_BOTH(64, int16_t, 8, __builtin_ia32_pmovsxwq512_mask, long long, short)
FB_CONVERT_BOTH(64, uint16_t, 8, __builtin_ia32_pmovzxwq512_mask, long long, short)
FB_CONVERT_BOTH(32, int16_t, 8, __builtin_ia32_pmovsxwd256_mask, int, short)
FB_CONVERT_BOTH(32, uint16_t, 8, __builtin_ia32_pmovzxwd256_mask, int, short)
FB_CONVERT_BOTH(16, int32_t, 8, __builtin_ia32_pmovdw256_mask, short, int)
FB_CONVERT_BOTH(16, uint32_t, 8, __builtin_ia32_pmovdw256_mask, short, int)
FB raw<char, 16> low_bytes(uint64_t bytes) { return (raw<char, 16>)raw<uint64_t, 2>{bytes, 0}; }
FB raw<int64_t, 8> converted(raw<int8_t, 8> x, Tag<raw<int64_t, 8>>) {
  return (raw<int64_t, 8>)__builtin_ia32_pmovsxbq512_mask(low_bytes((uint64_t)x), raw<long long, 8>{}, -1);
}
FB raw<int64_t, 8> converted(raw<uint8_t, 8> x, Tag<raw<int64_t, 8>>) {
  return (raw<int64_t, 8>)__builtin_ia32_pmovzxbq512_mask(low_bytes((uint64_t)x), raw<long long, 8>{}, -1);
}
FB raw<double, 8> converted(raw<float, 8> x, Tag<raw<double, 8>>) {
  return __builtin_ia32_cvtps2pd512_mask(x, raw<double, 8>{}, -1, 4);
}
FB raw<float, 16> converted(raw<int8_t, 16> x, Tag<raw<float, 16>>) {
  return __builtin_convertvector(converted(x, Tag<raw<int32_t, 16>>()), raw<float, 16>);
}
FB raw<float, 16> converted(raw<uint8_t, 16> x, Tag<raw<float, 16>>) {
  return __builtin_convertvector(converted(x, Tag<raw<int32_t, 16>>()), raw<float, 16>);
}
#endif
template <class To, int N, class From> FB raw<To, N> convert_raw(From x) {
  if constexpr (same_v<From, raw<To, N>>) return x;
  else return converted(x, Tag<raw<To, N>>());
}

template <class To, class From> FB To bits_as(From x) { return __builtin_bit_cast(To, x); }

}  // namespace fb
