// Stores that go past the caches: what a kernel writes is not read from memory first, where it would not stay in a
// cache anyway.
#pragma once
#include "memory.hpp"

#ifndef FB_FAR_BYTES
#define FB_FAR_BYTES (1 << 25)
#endif

namespace fb {

// Whether a call that reads and writes so many bytes finds little of them in a cache the next time.
FB bool is_far(int64_t bytes) { return bytes >= FB_FAR_BYTES; }

// Whether a register is a line of the caches.
constexpr bool whole_lines = register_bytes == 64;

// A whole register to an aligned address past the caches; all else as ever. Others see it behind `streamed`.
template <class T, class V> FB bool stream_raw(T* p, V x) {
#if FB_AVX2
  if constexpr (sizeof(V) == register_bytes) {
    if ((uint64_t)p % sizeof(V) != 0) return false;
#if defined(__clang__)
    __builtin_nontemporal_store(x, (V*)p);
    return true;
#elif FB_AVX512
    __builtin_ia32_movntps512((float*)(void*)p, bits_as<raw<float, 16>>(x));
    return true;
#else
    __builtin_ia32_movntps256((float*)(void*)p, bits_as<raw<float, 8>>(x));
    return true;
#endif
  }
#endif
  return false;
}
template <class T, class V, int N> FB void store_far(bool far, T* p, V x, Lanes<N> t) { store(p, x, t); }
template <class T, int N> FB void store_far(bool far, T* p, Vec<T, N> x, Full t) {
  if (!(far && stream_raw(p, x.v))) store(p, x, t);
}
template <int N> FB void store_far(bool far, bf16* p, Vec<float, N> x, Full t) { store(p, x, t); }
template <int N> FB void store_far(bool far, f16* p, Vec<float, N> x, Full t) { store(p, x, t); }
template <int N> FB void store_far(bool far, bool* p, Mask<N> x, Full t) { store(p, x, t); }
template <int N, class P> FB void store_two_far(bool far, bf16* p, Two<float, N> x, P t) {
  if constexpr (same_v<P, Full>) {
    if (far && stream_raw(p, packed(x))) return;
  }
  store_raw<uint16_t, N>((uint16_t*)p, packed(x), t);
}
FB void streamed(bool far) {
#if FB_AVX2
  if (far) __builtin_ia32_sfence();
#endif
}

}  // namespace fb
