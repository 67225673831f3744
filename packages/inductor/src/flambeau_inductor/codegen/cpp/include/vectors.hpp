// Vec<T, N> is one or more registers of N lanes; Mask<N> a truth value a lane; N is the same for every value of a loop.
// A function of values takes a Vec, a Mask or one value alike, so that kernels say the same for lanes and for the rest.
#pragma once
#include "registers.hpp"

namespace fb {

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

// The even and the odd ones of N elements, a register each (pairs.hpp).
template <class T, int N> struct Two {
  Vec<T, N / 2> even, odd;
  Two() = default;
  FB Two(Vec<T, N / 2> e, Vec<T, N / 2> o) : even(e), odd(o) {}
  FB explicit Two(T x) : even(x), odd(x) {}
};
template <int N> struct TwoMasks {
  Mask<N / 2> even, odd;
  TwoMasks() = default;
  FB TwoMasks(Mask<N / 2> e, Mask<N / 2> o) : even(e), odd(o) {}
  FB explicit TwoMasks(bool x) : even(x), odd(x) {}
};
template <int N, class T> FB Two<T, N> two(Vec<T, N / 2> even, Vec<T, N / 2> odd) { return {even, odd}; }
template <int N> FB TwoMasks<N> two(Mask<N / 2> even, Mask<N / 2> odd) { return {even, odd}; }

template <int N, class R> FB Mask<N> to_mask(R r) { return Mask<N>(convert_raw<mask_lane<N>, N>(r)); }

#define FB_BINARY(OP) \
  template <class T, int N> FB Vec<T, N> operator OP(Vec<T, N> a, Vec<T, N> b) { \
    return Vec<T, N>(raw<T, N>(a.v OP b.v)); \
  }
#define FB_COMPARE(NAME, OP) \
  template <class T, int N> FB Mask<N> NAME(Vec<T, N> a, Vec<T, N> b) { return to_mask<N>(a.v OP b.v); } \
  template <int N> FB Mask<N> NAME(Mask<N> a, Mask<N> b) { return Mask<N>(raw<mask_lane<N>, N>((-a.v)OP(-b.v))); } \
  template <class T> FB bool NAME(T a, T b) { return a OP b; }
// clang-format off
FB_BINARY(+) FB_BINARY(-) FB_BINARY(*) FB_BINARY(&) FB_BINARY(|) FB_BINARY(^)
FB_COMPARE(eq, ==) FB_COMPARE(ne, !=) FB_COMPARE(lt, <) FB_COMPARE(le, <=) FB_COMPARE(gt, >) FB_COMPARE(ge, >=)
// clang-format on
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

template <class T> struct LaneOf { typedef T type; };
template <class T, int N> struct LaneOf<Vec<T, N>> { typedef T type; };

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

}  // namespace fb
