// Folding the lanes of accumulators, and where the best value stands.
#pragma once
#include "arithmetic.hpp"
#include "halves.hpp"

namespace fb {

struct Add {
  template <class V> FB V operator()(V a, V b) const { return a + b; }
};
struct Multiply {
  template <class V> FB V operator()(V a, V b) const { return a * b; }
};
struct Xor {
  template <class V> FB V operator()(V a, V b) const { return a ^ b; }
};
struct Maximum {
  template <class V> FB V operator()(V a, V b) const { return maximum(a, b); }
};
struct Minimum {
  template <class V> FB V operator()(V a, V b) const { return minimum(a, b); }
};
struct Any {
  template <class V> FB V operator()(V a, V b) const { return a | b; }
  FB bool operator()(bool a, bool b) const { return a || b; }
};
struct All {
  template <class V> FB V operator()(V a, V b) const { return a & b; }
  FB bool operator()(bool a, bool b) const { return a && b; }
};
// Folding compares without a test for not-a-number at each step: one lane that is none decides first.
struct MaxSecond {
  template <class V> FB V operator()(V a, V b) const { return max_second(a, b); }
};
struct MinSecond {
  template <class V> FB V operator()(V a, V b) const { return min_second(a, b); }
};
template <class F, class T, int N> FB T fold(F f, Vec<T, N> x) {
  if constexpr (floating_v<T> && (same_v<F, Maximum> || same_v<F, Minimum>)) {
    if (__builtin_expect(lane_bits(isnan(x)) != 0, 0)) return (T)__builtin_nan("");
    if constexpr (same_v<F, Maximum>) return fold(MaxSecond{}, x);
    else return fold(MinSecond{}, x);
  } else if constexpr (N == 2) return f(x[0], x[1]);
  else return fold(f, f(low_half(x), high_half(x)));
}
template <class F, class T, int N> FB T fold(F f, Two<T, N> x) { return fold(f, f(x.even, x.odd)); }
template <class F, int N> FB bool fold(F f, Mask<N> x) {
  bool r = x[0];
  for (int k = 1; k < N; ++k) r = f(r, x[k]);
  return r;
}

// Each of n values becomes what it comes to with all before it, of which `a` is what they came to so far.
template <class F, class T, class E> FB void running(F f, T& a, E* x, int64_t n) {
  T last = a;
  for (int64_t k = 0; k < n; ++k) x[k] = (E)(last = f(last, (T)x[k]));
  a = last;
}
// The same of up to Most values where the order of the steps does not matter: parts side by side, for one step waits
// for the one before it, and then all that comes before each part.
template <int Most, class F, class T, class E> FB void running_apart(F f, T& a, E* x, int64_t n) {
  constexpr int parts = 8;
  const int64_t each = n / parts;
  if (each < 4) return running(f, a, x, n);
  alignas(64) T inside[Most];
  T last[parts];
  for (int p = 0; p < parts; ++p) inside[p * each] = last[p] = (T)x[p * each];
  for (int64_t k = 1; k < each; ++k)
    for (int p = 0; p < parts; ++p) inside[p * each + k] = last[p] = f(last[p], (T)x[p * each + k]);
  for (int p = 0; p < parts; ++p) {
    const T* const part = inside + p * each;
    for (int64_t k = 0; k < each; ++k) x[p * each + k] = (E)f(a, part[k]);
    a = f(a, part[each - 1]);
  }
  running(f, a, x + parts * each, n - parts * each);
}

// The best value and where it stands; not-a-number wins, the first of equals wins.
template <class T> struct Best {
  T value;
  int64_t index;
};
template <bool Max, class T> FB bool better(T a, int64_t i, T b, int64_t j) {
  if (isnan(a) || isnan(b)) return isnan(a) && (!isnan(b) || i < j);
  if (a == b) return i < j;
  return Max ? a > b : a < b;
}
template <bool Max, class T> FB Best<T> best(Best<T> b, T value, int64_t index) {
  return (b.index < 0 || better<Max>(value, index, b.value, b.index)) ? Best<T>{value, index} : b;
}
template <class T, int N> struct BestLanes {
  Vec<T, N> value;
  Vec<int_of<sizeof(T)>, N> index;
};
template <bool Max, class T, int N> FB BestLanes<T, N> best_lanes(BestLanes<T, N> b, Vec<T, N> x,
                                                                  int_of<sizeof(T)> step, Mask<N> live) {
  Mask<N> empty = to_mask<N>(b.index.v < 0);
  Mask<N> win = (Max ? gt(x, b.value) : lt(x, b.value)) | (isnan(x) & ~isnan(b.value)) | empty;
  win = win & live;
  return BestLanes<T, N>{select(win, x, b.value), select(win, Vec<int_of<sizeof(T)>, N>(step), b.index)};
}

// Fold the lanes' bests; lane k's index is the vector's first position, so its own is k further.
template <bool Max, class T, int N> FB Best<T> fold_best(BestLanes<T, N> b) {
  Best<T> r{b.value[0], -1};
  for (int k = 0; k < N; ++k)
    if (b.index[k] >= 0) r = best<Max>(r, b.value[k], (int64_t)b.index[k] + k);
  return r;
}

}  // namespace fb
