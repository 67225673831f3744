// Loads and stores under a predicate: side by side in memory, or lane by lane at addresses of their own.
#pragma once
#include "lanes.hpp"
#include "narrow.hpp"

namespace fb {

template <class T, int N> struct __attribute__((packed, may_alias)) Unaligned { raw<T, N> v; };
template <class T, int N> FB raw<T, N> load_raw(const T* p, Full) { return ((const Unaligned<T, N>*)p)->v; }
template <class T, int N> FB void store_raw(T* p, raw<T, N> x, Full) { ((Unaligned<T, N>*)p)->v = x; }
template <class T, int N> FB raw<T, N> load_raw(const T* p, Lanes<N> t) {
  typedef raw<T, N> R;
#if FB_AVX512
#define FB_MASKED_LOAD(SIZE, LANE, CTYPE, COUNT, BUILTIN) \
  if constexpr (sizeof(R) == SIZE && sizeof(T) == LANE) \
    return (R)BUILTIN((const CTYPE*)(const void*)p, (raw<CTYPE, COUNT>){}, t.bits); \
  else
  FB_MASKED_LOAD(64, 4, int, 16, __builtin_ia32_loaddqusi512_mask)
  FB_MASKED_LOAD(64, 8, long long, 8, __builtin_ia32_loaddqudi512_mask)
  FB_MASKED_LOAD(64, 2, short, 32, __builtin_ia32_loaddquhi512_mask)
  FB_MASKED_LOAD(32, 4, int, 8, __builtin_ia32_loaddqusi256_mask)
  FB_MASKED_LOAD(32, 2, short, 16, __builtin_ia32_loaddquhi256_mask)
  FB_MASKED_LOAD(16, 2, short, 8, __builtin_ia32_loaddquhi128_mask)
  FB_MASKED_LOAD(16, 1, char, 16, __builtin_ia32_loaddquqi128_mask)
#endif
  {
    R r{};
    for (int k = 0; k < N; ++k)
      if ((t.bits >> k) & 1) r[k] = p[k];
    return r;
  }
}
template <class T, int N> FB void store_raw(T* p, raw<T, N> x, Lanes<N> t) {
  typedef raw<T, N> R;
#if FB_AVX512
#define FB_MASKED_STORE(SIZE, LANE, CTYPE, COUNT, BUILTIN) \
  if constexpr (sizeof(R) == SIZE && sizeof(T) == LANE) BUILTIN((CTYPE*)(void*)p, (raw<CTYPE, COUNT>)x, t.bits); \
  else
  FB_MASKED_STORE(64, 4, int, 16, __builtin_ia32_storedqusi512_mask)
  FB_MASKED_STORE(64, 8, long long, 8, __builtin_ia32_storedqudi512_mask)
  FB_MASKED_STORE(64, 2, short, 32, __builtin_ia32_storedquhi512_mask)
  FB_MASKED_STORE(32, 4, int, 8, __builtin_ia32_storedqusi256_mask)
  FB_MASKED_STORE(32, 2, short, 16, __builtin_ia32_storedquhi256_mask)
  FB_MASKED_STORE(16, 2, short, 8, __builtin_ia32_storedquhi128_mask)
  FB_MASKED_STORE(16, 1, char, 16, __builtin_ia32_storedquqi128_mask)
#endif
  {
    for (int k = 0; k < N; ++k)
      if ((t.bits >> k) & 1) p[k] = x[k];
  }
}

// Values of each type in memory.
template <int N, class T, class P> FB Vec<T, N> load(const T* p, P t) { return Vec<T, N>(load_raw<T, N>(p, t)); }
template <int N, class P> FB Vec<float, N> load(const bf16* p, P t) {
  raw<uint32_t, N> w = convert_raw<uint32_t, N>(load_raw<uint16_t, N>((const uint16_t*)p, t));
  return Vec<float, N>(bits_as<raw<float, N>>(w << 16));
}
template <int N, class P> FB Vec<float, N> load(const f16* p, P t) {
  return Vec<float, N>(widen_f16<N>(load_raw<uint16_t, N>((const uint16_t*)p, t)));
}
template <int N, class P> FB Mask<N> load(const bool* p, P t) {
  return Mask<N>(convert_raw<mask_lane<N>, N>(load_raw<int8_t, N>((const int8_t*)p, t)) != 0);
}
template <class T> FB T load1(const T* p) { return *p; }
FB float load1(const bf16* p) { return widen(*p); }
FB float load1(const f16* p) { return widen(*p); }

template <class T, int N, class P> FB void store(T* p, Vec<T, N> x, P t) { store_raw<T, N>(p, x.v, t); }
template <int N, class P> FB void store(bf16* p, Vec<float, N> x, P t) {
  store_raw<uint16_t, N>((uint16_t*)p, convert_raw<uint16_t, N>(bits_as<raw<uint32_t, N>>(x.v) >> 16), t);
}
template <int N, class P> FB void store(f16* p, Vec<float, N> x, P t) {
  store_raw<uint16_t, N>((uint16_t*)p, narrow_f16<N>(x.v), t);
}
template <int N, class P> FB void store(bool* p, Mask<N> x, P t) {
  store_raw<int8_t, N>((int8_t*)p, convert_raw<int8_t, N>(-x.v), t);
}
// The upper halves of the even and the odd ones, in order.
template <int N> FB raw<uint16_t, N> packed(Two<float, N> x) {
  typedef raw<uint32_t, N / 2> U;
  return bits_as<raw<uint16_t, N>>((bits_as<U>(x.even.v) >> 16) | bits_as<U>(x.odd.v));
}
template <class T> FB void store1(T* p, T x) { *p = x; }
FB void store1(bf16* p, float x) { p->bits = bf16_of(x); }
FB void store1(f16* p, float x) { p->bits = f16_of(x); }

// Lane by lane access, for strided and indirect indices: the function gives the address of a lane.
template <int N, class T, class F> FB typename Value<T, N>::type gather(const T* p, Full, F index) {
  typename Value<T, N>::type r{};
  for (int k = 0; k < N; ++k) r.set(k, load1(p + index(k)));
  return r;
}
template <int N, class T, class F> FB typename Value<T, N>::type gather(const T* p, Lanes<N> t, F index) {
  typename Value<T, N>::type r{};
  for (int k = 0; k < N; ++k)
    if ((t.bits >> k) & 1) r.set(k, load1(p + index(k)));
  return r;
}
template <int N, class T, class V, class F> FB void spread(T* p, V x, Full, F index) {
  for (int k = 0; k < N; ++k) store1(p + index(k), x[k]);
}
template <int N, class T, class V, class F> FB void spread(T* p, V x, Lanes<N> t, F index) {
  for (int k = 0; k < N; ++k)
    if ((t.bits >> k) & 1) store1(p + index(k), x[k]);
}

}  // namespace fb
