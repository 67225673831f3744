// Names of the types and of the machine: what everything else is written with. No header of the system is included, so
// that a small kernel compiles at once.
#pragma once

#define FB inline __attribute__((always_inline))

typedef __INT8_TYPE__ int8_t;
typedef __INT16_TYPE__ int16_t;
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;

namespace fb {

struct bf16 { uint16_t bits; };
struct f16 { uint16_t bits; };

#if defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
#define FB_AVX512 1
constexpr int register_bytes = 64;
#else
#define FB_AVX512 0
constexpr int register_bytes = 32;
#endif
#if defined(__F16C__) && defined(__FMA__) && defined(__AVX2__)
#define FB_AVX2 1
#else
#define FB_AVX2 0
#endif

template <class T> struct Tag {};
template <class A, class B> constexpr bool same_v = false;
template <class A> constexpr bool same_v<A, A> = true;
template <class T> constexpr bool floating_v = same_v<T, float> || same_v<T, double>;
template <int Bytes, bool Signed = true> struct IntOf;
template <> struct IntOf<1, true> { typedef int8_t type; };
template <> struct IntOf<2, true> { typedef int16_t type; };
template <> struct IntOf<4, true> { typedef int32_t type; };
template <> struct IntOf<8, true> { typedef int64_t type; };
template <> struct IntOf<1, false> { typedef uint8_t type; };
template <> struct IntOf<2, false> { typedef uint16_t type; };
template <> struct IntOf<4, false> { typedef uint32_t type; };
template <> struct IntOf<8, false> { typedef uint64_t type; };
template <int Bytes> using int_of = typename IntOf<Bytes, true>::type;

}  // namespace fb
