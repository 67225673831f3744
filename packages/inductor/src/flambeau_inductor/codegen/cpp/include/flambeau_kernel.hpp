// Support for generated CPU kernels: fixed-width vectors over GCC's vector extension, loads and stores with lane predicates,
// low-precision conversions, and vector mathematics. No other header is included, so that a small kernel compiles at once.
//
// Vec<T, N> is one or more registers of N lanes; Mask<N> a truth value a lane; N is the same for every value of a loop.
// A predicate is Full (every lane is live) or Lanes<N> (a bit a lane); dead lanes are neither read nor written.
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

// ---- vectors ---------------------------------------------------------------------------------------------------------------
template <class T, int N> struct Raw { typedef T type __attribute__((vector_size(N * sizeof(T)))); };
template <class T, int N> using raw = typename Raw<T, N>::type;
template <int N> using mask_lane = int_of<(register_bytes / N > 8 ? 8 : register_bytes / N)>;

template <class T, int N> struct Vec {
  raw<T, N> v;
  Vec() = default;
  FB Vec(raw<T, N> x) : v(x) {}
  FB Vec(T x) : v(x - raw<T, N>{}) {}
  FB T operator[](int k) const { return v[k]; }
  FB void set(int k, T x) { v[k] = x; }
};

template <int N> struct Mask {
  raw<mask_lane<N>, N> v;
  Mask() = default;
  FB Mask(raw<mask_lane<N>, N> x) : v(x) {}
  FB Mask(bool x) : v((mask_lane<N>)(x ? -1 : 0) - raw<mask_lane<N>, N>{}) {}
  FB bool operator[](int k) const { return v[k] != 0; }
  FB void set(int k, bool x) { v[k] = x ? -1 : 0; }
};

// Conversions of whole registers that the compiler splits into halves or moves a lane at a time on its own.
template <class To, class From> FB To converted(From x, Tag<To>) { return __builtin_convertvector(x, To); }
#if FB_AVX512
#define FB_CONVERT(TO, FROM, N, BUILTIN, BARE_TO, BARE_FROM)                        \
  FB raw<TO, N> converted(raw<FROM, N> x, Tag<raw<TO, N>>) {                        \
    return (raw<TO, N>)BUILTIN((raw<BARE_FROM, N>)x, raw<BARE_TO, N>{}, -1);        \
  }
#define FB_CONVERT_BOTH(BITS, FROM, N, BUILTIN, BARE_TO, BARE_FROM)                 \
  FB_CONVERT(int##BITS##_t, FROM, N, BUILTIN, BARE_TO, BARE_FROM)                   \
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
FB raw<double, 8> converted(raw<float, 8> x, Tag<raw<double, 8>>) { return __builtin_ia32_cvtps2pd512_mask(x, raw<double, 8>{}, -1, 4); }
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
template <int N, class R> FB Mask<N> to_mask(R r) { return Mask<N>(convert_raw<mask_lane<N>, N>(r)); }
template <class To, class From> FB To bits_as(From x) { return __builtin_bit_cast(To, x); }

#define FB_BINARY(OP)                                                                                          \
  template <class T, int N> FB Vec<T, N> operator OP(Vec<T, N> a, Vec<T, N> b) { return Vec<T, N>(raw<T, N>(a.v OP b.v)); }
#define FB_COMPARE(NAME, OP)                                                                                   \
  template <class T, int N> FB Mask<N> NAME(Vec<T, N> a, Vec<T, N> b) { return to_mask<N>(a.v OP b.v); }       \
  template <int N> FB Mask<N> NAME(Mask<N> a, Mask<N> b) { return Mask<N>(raw<mask_lane<N>, N>((-a.v) OP (-b.v))); } \
  template <class T> FB bool NAME(T a, T b) { return a OP b; }
FB_BINARY(+) FB_BINARY(-) FB_BINARY(*) FB_BINARY(&) FB_BINARY(|) FB_BINARY(^)
FB_COMPARE(eq, ==) FB_COMPARE(ne, !=) FB_COMPARE(lt, <) FB_COMPARE(le, <=) FB_COMPARE(gt, >) FB_COMPARE(ge, >=)
template <class T, int N> FB Vec<T, N> operator-(Vec<T, N> a) { return Vec<T, N>(-a.v); }
template <class T, int N> FB Vec<T, N> operator~(Vec<T, N> a) { return Vec<T, N>(~a.v); }
template <int N> FB Mask<N> operator&(Mask<N> a, Mask<N> b) { return Mask<N>(a.v & b.v); }
template <int N> FB Mask<N> operator|(Mask<N> a, Mask<N> b) { return Mask<N>(a.v | b.v); }
template <int N> FB Mask<N> operator^(Mask<N> a, Mask<N> b) { return Mask<N>(a.v ^ b.v); }
template <int N> FB Mask<N> operator~(Mask<N> a) { return Mask<N>(~a.v); }

template <class T, int N> FB Vec<T, N> select(Mask<N> m, Vec<T, N> a, Vec<T, N> b) {
  return Vec<T, N>(convert_raw<int_of<sizeof(T)>, N>(m.v) ? a.v : b.v);
}
template <int N> FB Mask<N> select(Mask<N> m, Mask<N> a, Mask<N> b) { return Mask<N>((m.v & a.v) | (~m.v & b.v)); }
template <class T> FB T select(bool m, T a, T b) { return m ? a : b; }

template <class F, class T, int N> FB Vec<T, N> each(F f, Vec<T, N> a) {
  Vec<T, N> r;
  for (int k = 0; k < N; ++k) r.set(k, f(a[k]));
  return r;
}
template <class F, class T, int N> FB Vec<T, N> each(F f, Vec<T, N> a, Vec<T, N> b) {
  Vec<T, N> r;
  for (int k = 0; k < N; ++k) r.set(k, f(a[k], b[k]));
  return r;
}

// ---- halves ---------------------------------------------------------------------------------------------------------------------
template <class T, int N> FB Vec<T, N / 2> low_half(Vec<T, N> x) {
  if constexpr (N == 16) return Vec<T, 8>(__builtin_shufflevector(x.v, x.v, 0, 1, 2, 3, 4, 5, 6, 7));
  else if constexpr (N == 8) return Vec<T, 4>(__builtin_shufflevector(x.v, x.v, 0, 1, 2, 3));
  else return Vec<T, 2>(__builtin_shufflevector(x.v, x.v, 0, 1));
}
template <class T, int N> FB Vec<T, N / 2> high_half(Vec<T, N> x) {
  if constexpr (N == 16) return Vec<T, 8>(__builtin_shufflevector(x.v, x.v, 8, 9, 10, 11, 12, 13, 14, 15));
  else if constexpr (N == 8) return Vec<T, 4>(__builtin_shufflevector(x.v, x.v, 4, 5, 6, 7));
  else return Vec<T, 2>(__builtin_shufflevector(x.v, x.v, 2, 3));
}
template <class T, int N> FB Vec<T, 2 * N> join(Vec<T, N> a, Vec<T, N> b) {
  if constexpr (N == 8) return Vec<T, 16>(__builtin_shufflevector(a.v, b.v, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  else if constexpr (N == 4) return Vec<T, 8>(__builtin_shufflevector(a.v, b.v, 0, 1, 2, 3, 4, 5, 6, 7));
  else return Vec<T, 4>(__builtin_shufflevector(a.v, b.v, 0, 1, 2, 3));
}

// ---- predicates --------------------------------------------------------------------------------------------------------------
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
template <int N> FB bool live(Full, int) { return true; }
template <int N> FB bool live(Lanes<N> t, int k) { return (t.bits >> k) & 1; }
template <int N> FB Mask<N> lane_mask(Full) { return Mask<N>(true); }
template <int N> FB Mask<N> lane_mask(Lanes<N> t) {
  Mask<N> r;
  for (int k = 0; k < N; ++k) r.v[k] = 1 << k;
  r.v = (r.v & (mask_lane<N>)t.bits) != 0;
  return r;
}

// ---- raw loads and stores ------------------------------------------------------------------------------------------------------
template <class T, int N> struct __attribute__((packed, may_alias)) Unaligned { raw<T, N> v; };
template <class T, int N> FB raw<T, N> load_raw(const T* p, Full) { return ((const Unaligned<T, N>*)p)->v; }
template <class T, int N> FB void store_raw(T* p, raw<T, N> x, Full) { ((Unaligned<T, N>*)p)->v = x; }
template <class T, int N> FB raw<T, N> load_raw(const T* p, Lanes<N> t) {
  typedef raw<T, N> R;
#if FB_AVX512
#define FB_MASKED_LOAD(SIZE, LANE, CTYPE, COUNT, BUILTIN)                                        \
  if constexpr (sizeof(R) == SIZE && sizeof(T) == LANE)                                          \
    return (R)BUILTIN((const CTYPE*)(const void*)p, (raw<CTYPE, COUNT>){}, t.bits);  \
  else
  FB_MASKED_LOAD(64, 4, int, 16, __builtin_ia32_loaddqusi512_mask)
  FB_MASKED_LOAD(64, 8, long long, 8, __builtin_ia32_loaddqudi512_mask)
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
#define FB_MASKED_STORE(SIZE, LANE, CTYPE, COUNT, BUILTIN)                                     \
  if constexpr (sizeof(R) == SIZE && sizeof(T) == LANE)                                        \
    BUILTIN((CTYPE*)(void*)p, (raw<CTYPE, COUNT>)x, t.bits);                       \
  else
  FB_MASKED_STORE(64, 4, int, 16, __builtin_ia32_storedqusi512_mask)
  FB_MASKED_STORE(64, 8, long long, 8, __builtin_ia32_storedqudi512_mask)
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

// ---- low precision: values live as float in registers, already rounded --------------------------------------------------------------
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
template <int N> FB Vec<float, N> round_bf16(Vec<float, N> x) { return Vec<float, N>(bits_as<raw<float, N>>(bf16_bits<N>(x.v))); }

FB float widen(f16 x) { return (float)bits_as<_Float16>(x.bits); }
FB uint16_t f16_of(float x) { return bits_as<uint16_t>((_Float16)x); }
FB float round_f16(float x) { return (float)(_Float16)x; }
template <int N> FB raw<float, N> widen_f16(raw<uint16_t, N> h) {
#if FB_AVX512
  if constexpr (N == 16) return __builtin_ia32_vcvtph2ps512_mask((raw<short, 16>)h, (raw<float, 16>){}, -1, 4);
  else
#endif
#if FB_AVX2
  if constexpr (N == 8) return __builtin_ia32_vcvtph2ps256((raw<short, 8>)h);
  else
#endif
  {
    raw<float, N> r{};
    for (int k = 0; k < N; ++k) r[k] = widen(f16{h[k]});
    return r;
  }
}
template <int N> FB raw<uint16_t, N> narrow_f16(raw<float, N> x) {
#if FB_AVX512
  if constexpr (N == 16) return (raw<uint16_t, 16>)__builtin_ia32_vcvtps2ph512_mask(x, 0, (raw<short, 16>){}, -1);
  else
#endif
#if FB_AVX2
  if constexpr (N == 8) return (raw<uint16_t, 8>)__builtin_ia32_vcvtps2ph256(x, 0);
  else
#endif
  {
    raw<uint16_t, N> r{};
    for (int k = 0; k < N; ++k) r[k] = f16_of(x[k]);
    return r;
  }
}
template <int N> FB Vec<float, N> round_f16(Vec<float, N> x) { return Vec<float, N>(widen_f16<N>(narrow_f16<N>(x.v))); }

// ---- typed loads and stores ------------------------------------------------------------------------------------------------------
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
template <int N, class P> FB void store(f16* p, Vec<float, N> x, P t) { store_raw<uint16_t, N>((uint16_t*)p, narrow_f16<N>(x.v), t); }
template <int N, class P> FB void store(bool* p, Mask<N> x, P t) { store_raw<int8_t, N>((int8_t*)p, convert_raw<int8_t, N>(-x.v), t); }
template <class T> FB void store1(T* p, T x) { *p = x; }
FB void store1(bf16* p, float x) { p->bits = bf16_of(x); }
FB void store1(f16* p, float x) { p->bits = f16_of(x); }

// Lane by lane access, for strided and indirect indices: the function gives the address of a lane.
template <class T> struct Held { typedef T type; };
template <> struct Held<bf16> { typedef float type; };
template <> struct Held<f16> { typedef float type; };
template <class T, int N> struct Value { typedef Vec<typename Held<T>::type, N> type; };
template <int N> struct Value<bool, N> { typedef Mask<N> type; };
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

// Square blocks of N x N elements turned in registers: after each of log2(N) steps that interleave the first half of the rows with
// the second, rows and columns have changed one more bit of their numbers.
template <int... I> struct Places {};
template <int N, int... I> struct PlacesTo { typedef typename PlacesTo<N - 1, N - 1, I...>::type type; };
template <int... I> struct PlacesTo<0, I...> { typedef Places<I...> type; };
template <int From, class R, int... I> FB R interleave(R a, R b, Places<I...>) {
  constexpr int N = sizeof...(I);
  return __builtin_shufflevector(a, b, (From + I / 2 + (I % 2) * N)...);
}
template <class T, int N> FB void turn_rows(raw<T, N> (&r)[N]) {
  typedef typename PlacesTo<N>::type All;
  raw<T, N> s[N];
#pragma GCC unroll 4
  for (int step = 1; step < N; step *= 2) {
#pragma GCC unroll 16
    for (int k = 0; k < N / 2; ++k) {
      s[2 * k] = interleave<0>(r[k], r[k + N / 2], All{});
      s[2 * k + 1] = interleave<N / 2>(r[k], r[k + N / 2], All{});
    }
#pragma GCC unroll 16
    for (int k = 0; k < N; ++k) r[k] = s[k];
  }
}
template <int N, class T> __attribute__((noinline)) void turn_part(const T* from, int64_t step, int64_t rows, int64_t run, T* to, int64_t to_step) {
  raw<T, N> r[N];
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) r[k] = k < rows ? load_raw<T, N>(from + k * step, first<N>(run)) : raw<T, N>{};
  turn_rows<T, N>(r);
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k)
    if (k < run) store_raw<T, N>(to + k * to_step, r[k], first<N>(rows));
}
template <class T> struct Moved { typedef T type; };
template <> struct Moved<bf16> { typedef uint16_t type; };
template <> struct Moved<f16> { typedef uint16_t type; };
template <> struct Moved<bool> { typedef int8_t type; };
// target[j * to_step + k] = source[k * step + j] for k < rows <= N and j < run <= N.
template <int N, class E> FB void turn(const E* source, int64_t step, int64_t rows, int64_t run, E* target, int64_t to_step) {
  typedef typename Moved<E>::type T;
  const T* from = (const T*)source;
  T* to = (T*)target;
  if (rows != N || run != N) return turn_part<N>(from, step, rows, run, to, to_step);
  raw<T, N> r[N];
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) r[k] = load_raw<T, N>(from + k * step, Full{});
  turn_rows<T, N>(r);
#pragma GCC unroll 16
  for (int k = 0; k < N; ++k) store_raw<T, N>(to + k * to_step, r[k], Full{});
}
template <int N, class F> FB Vec<int64_t, N> lanes_i64(F f) {
  Vec<int64_t, N> r;
  for (int k = 0; k < N; ++k) r.set(k, f(k));
  return r;
}
template <class T, int N> FB Vec<T, N> iota(T base) {
  raw<T, N> r;
  for (int k = 0; k < N; ++k) r[k] = (T)k;
  return Vec<T, N>(r + base);
}

// ---- conversions -----------------------------------------------------------------------------------------------------------------
template <class To, class From> FB To cast(From x) {
  if constexpr (same_v<To, bool>) return x != 0;
  else if constexpr (same_v<From, bool>) return (To)(x ? 1 : 0);
  else if constexpr (floating_v<From> && !floating_v<To> && sizeof(To) < 4) return (To)(int32_t)x;
  else return (To)x;
}
template <class To, class From, int N> FB typename Value<To, N>::type cast(Vec<From, N> x) {
  if constexpr (same_v<To, bool>) return to_mask<N>(x.v != raw<From, N>{});
  else if constexpr (floating_v<From> && !floating_v<To> && sizeof(To) < 4)
    return Vec<To, N>(convert_raw<To, N>(convert_raw<int32_t, N>(x.v)));
  else return Vec<To, N>(convert_raw<To, N>(x.v));
}
template <class To, int N> FB typename Value<To, N>::type cast(Mask<N> x) {
  if constexpr (same_v<To, bool>) return x;
  else if constexpr (floating_v<To>) return select(x, Vec<To, N>((To)1), Vec<To, N>((To)0));
  else return Vec<To, N>(convert_raw<To, N>(-x.v));
}
template <class To, class From, int N> FB Vec<To, N> bitcast(Vec<From, N> x) { return Vec<To, N>(bits_as<raw<To, N>>(x.v)); }
template <class To, class From> FB To bitcast(From x) { return bits_as<To>(x); }
template <class T, int N> FB typename Value<T, N>::type broadcast(typename Held<T>::type x) { return typename Value<T, N>::type(x); }

// ---- elementary arithmetic ----------------------------------------------------------------------------------------------------------
template <class T> struct LaneOf { typedef T type; };
template <class T, int N> struct LaneOf<Vec<T, N>> { typedef T type; };

template <class T> FB T fma(T a, T b, T c) {
  if constexpr (same_v<T, float>) return __builtin_fmaf(a, b, c); else return __builtin_fma(a, b, c);
}
template <class T, int N> FB Vec<T, N> fma(Vec<T, N> a, Vec<T, N> b, Vec<T, N> c) {
#if FB_AVX512
  if constexpr (same_v<T, float> && N == 16) return Vec<T, N>(__builtin_ia32_vfmaddps512_mask(a.v, b.v, c.v, -1, 4));
  else if constexpr (same_v<T, double> && N == 8) return Vec<T, N>(__builtin_ia32_vfmaddpd512_mask(a.v, b.v, c.v, -1, 4));
  else
#endif
#if FB_AVX2
  if constexpr (same_v<T, float> && N == 8) return Vec<T, N>(__builtin_ia32_vfmaddps256(a.v, b.v, c.v));
  else if constexpr (same_v<T, double> && N == 4) return Vec<T, N>(__builtin_ia32_vfmaddpd256(a.v, b.v, c.v));
  else
#endif
  {
    Vec<T, N> r;
    for (int k = 0; k < N; ++k) r.set(k, fma(a[k], b[k], c[k]));
    return r;
  }
}
template <class T, int N> FB Vec<T, N> fma(Vec<T, N> a, Vec<T, N> b, T c) { return fma(a, b, Vec<T, N>(c)); }
template <class T, int N> FB Vec<T, N> fma(Vec<T, N> a, T b, Vec<T, N> c) { return fma(a, Vec<T, N>(b), c); }

#define FB_ROUNDING(NAME, MODE, F, D)                                                                                        \
  FB float NAME(float x) { return F(x); }                                                                                    \
  FB double NAME(double x) { return D(x); }                                                                                  \
  template <class T, int N> FB Vec<T, N> NAME(Vec<T, N> a) {                                                                 \
    FB_ROUND_512(MODE) FB_ROUND_256(MODE)                                                                                    \
    { return each([](T x) { return NAME(x); }, a); }                                                                         \
  }
#if FB_AVX512
#define FB_ROUND_512(MODE)                                                                                                             \
  if constexpr (same_v<T, float> && N == 16) return Vec<T, N>(__builtin_ia32_rndscaleps_mask(a.v, MODE, a.v, -1, 4));                  \
  else if constexpr (same_v<T, double> && N == 8) return Vec<T, N>(__builtin_ia32_rndscalepd_mask(a.v, MODE, a.v, -1, 4));             \
  else
#else
#define FB_ROUND_512(MODE)
#endif
#if FB_AVX2
#define FB_ROUND_256(MODE)                                                                          \
  if constexpr (same_v<T, float> && N == 8) return Vec<T, N>(__builtin_ia32_roundps256(a.v, MODE)); \
  else if constexpr (same_v<T, double> && N == 4) return Vec<T, N>(__builtin_ia32_roundpd256(a.v, MODE)); \
  else
#else
#define FB_ROUND_256(MODE)
#endif
FB_ROUNDING(round_even, 8, __builtin_rintf, __builtin_rint)
FB_ROUNDING(floor, 9, __builtin_floorf, __builtin_floor)
FB_ROUNDING(ceil, 10, __builtin_ceilf, __builtin_ceil)
FB_ROUNDING(trunc, 11, __builtin_truncf, __builtin_trunc)

FB float sqrt(float x) { return __builtin_sqrtf(x); }
FB double sqrt(double x) { return __builtin_sqrt(x); }
template <class T, int N> FB Vec<T, N> sqrt(Vec<T, N> a) {
#if FB_AVX512
  if constexpr (same_v<T, float> && N == 16) return Vec<T, N>(__builtin_ia32_sqrtps512_mask(a.v, a.v, -1, 4));
  else if constexpr (same_v<T, double> && N == 8) return Vec<T, N>(__builtin_ia32_sqrtpd512_mask(a.v, a.v, -1, 4));
  else
#endif
#if FB_AVX2
  if constexpr (same_v<T, float> && N == 8) return Vec<T, N>(__builtin_ia32_sqrtps256(a.v));
  else if constexpr (same_v<T, double> && N == 4) return Vec<T, N>(__builtin_ia32_sqrtpd256(a.v));
  else
#endif
    return each([](T x) { return sqrt(x); }, a);
}

// The hardware's max: the second operand where either is not a number.
template <class T> FB T max_second(T a, T b) { return a > b ? a : b; }
template <class T> FB T min_second(T a, T b) { return a < b ? a : b; }
template <class T, int N> FB Vec<T, N> max_second(Vec<T, N> a, Vec<T, N> b) {
#if FB_AVX512
  if constexpr (same_v<T, float> && N == 16) return Vec<T, N>(__builtin_ia32_maxps512_mask(a.v, b.v, a.v, -1, 4));
  else if constexpr (same_v<T, double> && N == 8) return Vec<T, N>(__builtin_ia32_maxpd512_mask(a.v, b.v, a.v, -1, 4));
  else
#endif
#if FB_AVX2
  if constexpr (same_v<T, float> && N == 8) return Vec<T, N>(__builtin_ia32_maxps256(a.v, b.v));
  else if constexpr (same_v<T, double> && N == 4) return Vec<T, N>(__builtin_ia32_maxpd256(a.v, b.v));
  else
#endif
    return Vec<T, N>(a.v > b.v ? a.v : b.v);
}
template <class T, int N> FB Vec<T, N> min_second(Vec<T, N> a, Vec<T, N> b) {
#if FB_AVX512
  if constexpr (same_v<T, float> && N == 16) return Vec<T, N>(__builtin_ia32_minps512_mask(a.v, b.v, a.v, -1, 4));
  else if constexpr (same_v<T, double> && N == 8) return Vec<T, N>(__builtin_ia32_minpd512_mask(a.v, b.v, a.v, -1, 4));
  else
#endif
#if FB_AVX2
  if constexpr (same_v<T, float> && N == 8) return Vec<T, N>(__builtin_ia32_minps256(a.v, b.v));
  else if constexpr (same_v<T, double> && N == 4) return Vec<T, N>(__builtin_ia32_minpd256(a.v, b.v));
  else
#endif
    return Vec<T, N>(a.v < b.v ? a.v : b.v);
}
template <class T, int N> FB Mask<N> isnan(Vec<T, N> a) { return to_mask<N>(a.v != a.v); }
template <class T> FB bool isnan(T a) { return a != a; }
template <class V> FB V maximum(V a, V b) {
  if constexpr (floating_v<typename LaneOf<V>::type>) return select(isnan(a), a, max_second(a, b)); else return max_second(a, b);
}
template <class V> FB V minimum(V a, V b) {
  if constexpr (floating_v<typename LaneOf<V>::type>) return select(isnan(a), a, min_second(a, b)); else return min_second(a, b);
}
template <int N> FB Mask<N> maximum(Mask<N> a, Mask<N> b) { return a | b; }
template <int N> FB Mask<N> minimum(Mask<N> a, Mask<N> b) { return a & b; }
FB bool maximum(bool a, bool b) { return a || b; }
FB bool minimum(bool a, bool b) { return a && b; }
template <class V> FB V fmax(V a, V b) { return select(isnan(b), a, max_second(a, b)); }
template <class V> FB V fmin(V a, V b) { return select(isnan(b), a, min_second(a, b)); }

template <class T> FB T abs(T x) {
  if constexpr (same_v<T, float>) return __builtin_fabsf(x);
  else if constexpr (same_v<T, double>) return __builtin_fabs(x);
  else if constexpr ((T)-1 > (T)0) return x;
  else return (T)(x < 0 ? (T)(0 - (uint64_t)x) : x);
}
template <class T, int N> FB Vec<T, N> abs(Vec<T, N> x) {
  if constexpr (floating_v<T>) {
    typedef int_of<sizeof(T)> I;
    return Vec<T, N>(bits_as<raw<T, N>>(bits_as<raw<I, N>>(x.v) & (I)(~((uint64_t)1 << (sizeof(T) * 8 - 1)))));
  } else if constexpr ((T)-1 > (T)0) return x;
  else return Vec<T, N>(x.v < 0 ? -x.v : x.v);
}
FB float copysign(float a, float b) { return __builtin_copysignf(a, b); }
FB double copysign(double a, double b) { return __builtin_copysign(a, b); }
template <class T, int N> FB Vec<T, N> copysign(Vec<T, N> a, Vec<T, N> b) {
  typedef int_of<sizeof(T)> I;
  I top = (I)((uint64_t)1 << (sizeof(T) * 8 - 1));
  return Vec<T, N>(bits_as<raw<T, N>>((bits_as<raw<I, N>>(a.v) & (I)~top) | (bits_as<raw<I, N>>(b.v) & top)));
}
template <class T> FB bool signbit(T x) {
  if constexpr (same_v<T, bool>) return false; else if constexpr (floating_v<T>) return bits_as<int_of<sizeof(T)>>(x) < 0; else return x < 0;
}
template <class T, int N> FB Mask<N> signbit(Vec<T, N> x) {
  if constexpr (floating_v<T>) return to_mask<N>(bits_as<raw<int_of<sizeof(T)>, N>>(x.v) < 0); else return to_mask<N>(x.v < 0);
}
template <class T> FB bool isinf(T x) { return abs(x) == (T)__builtin_inf(); }
template <class T, int N> FB Mask<N> isinf(Vec<T, N> x) { return eq(abs(x), Vec<T, N>((T)__builtin_inf())); }

// ---- division -----------------------------------------------------------------------------------------------------------------------
template <class T> FB T divide(T a, T b) { return a / b; }
template <class T, int N> FB Vec<T, N> divide(Vec<T, N> a, Vec<T, N> b) { return Vec<T, N>(a.v / b.v); }
// Integer division never traps: a zero divisor is reported through the flag and gives zero, the lowest value over -1 wraps.
template <class T> FB T div_trunc(T a, T b, int64_t* failed) {
  if (b == 0) { *failed = 2; return 0; }
  if constexpr ((T)-1 < (T)0) { if (b == (T)-1) return (T)(0 - (uint64_t)a); }
  return a / b;
}
template <class T> FB T div_floor(T a, T b, int64_t* failed) {
  T q = div_trunc(a, b, failed);
  if constexpr ((T)-1 < (T)0) { if (b != 0 && (T)(q * b) != a && ((a < 0) != (b < 0))) --q; }
  return q;
}
template <class T> FB T mod_trunc(T a, T b, int64_t* failed) {
  T q = div_trunc(a, b, failed);
  return (T)(a - (T)(q * b));
}
template <class T> FB T mod_floor(T a, T b, int64_t* failed) {
  T r = mod_trunc(a, b, failed);
  if constexpr ((T)-1 < (T)0) { if (b != 0 && r != 0 && ((r < 0) != (b < 0))) r = (T)(r + b); }
  return r;
}
template <class T, class P> FB T lane_or_one(P t, int k, T b) {
  if constexpr (same_v<P, Full>) return b; else return ((t.bits >> k) & 1) ? b : (T)1;
}
#define FB_INT_DIVISION(NAME)                                                                                  \
  template <class T, int N, class P> FB Vec<T, N> NAME(Vec<T, N> a, Vec<T, N> b, int64_t* failed, P t) {       \
    Vec<T, N> r;                                                                                               \
    for (int k = 0; k < N; ++k) r.set(k, NAME(a[k], lane_or_one(t, k, b[k]), failed));                         \
    return r;                                                                                                  \
  }
FB_INT_DIVISION(div_trunc) FB_INT_DIVISION(div_floor) FB_INT_DIVISION(mod_trunc) FB_INT_DIVISION(mod_floor)
FB float fmod(float a, float b) { return __builtin_fmodf(a, b); }
FB double fmod(double a, double b) { return __builtin_fmod(a, b); }
template <class T, int N> FB Vec<T, N> fmod(Vec<T, N> a, Vec<T, N> b) { return each([](T x, T y) { return fmod(x, y); }, a, b); }
template <class V> FB V float_mod_floor(V a, V b) {
  V r = fmod(a, b), zero = V(0);
  return select(ne(r, zero) & (lt(b, zero) ^ lt(r, zero)), r + b, r);
}
template <class V> FB V float_div_floor(V a, V b) {
  V zero = V(0), m = fmod(a, b), d = divide(a - m, b);
  d = select(ne(m, zero) & (lt(b, zero) ^ lt(m, zero)), d - V(1), d);
  V f = floor(d);
  f = select(gt(d - f, V((typename LaneOf<V>::type)0.5)), f + V(1), f);
  f = select(eq(d, zero), copysign(zero, divide(a, b)), f);
  return select(eq(b, zero), divide(a, b), f);
}

// ---- shifts --------------------------------------------------------------------------------------------------------------------------
template <class T> FB T shift_left(T a, T b) { return (b < 0 || b >= (T)(sizeof(T) * 8)) ? (T)0 : (T)((uint64_t)a << b); }
template <class T> FB T shift_right(T a, T b) {
  T top = (T)(sizeof(T) * 8 - 1);
  if constexpr ((T)-1 > (T)0) return b > top ? (T)0 : (T)(a >> b);
  else return (T)(a >> ((b < 0 || b > top) ? top : b));
}
template <class T, int N> FB Vec<T, N> shift_left(Vec<T, N> a, Vec<T, N> b) { return each([](T x, T y) { return shift_left(x, y); }, a, b); }
template <class T, int N> FB Vec<T, N> shift_right(Vec<T, N> a, Vec<T, N> b) { return each([](T x, T y) { return shift_right(x, y); }, a, b); }

}  // namespace fb

#include "flambeau_math.hpp"
#include "flambeau_reduce.hpp"
