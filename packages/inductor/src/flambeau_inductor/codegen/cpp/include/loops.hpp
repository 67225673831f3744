// What loops are written with: bounds, memory of one call, Python's division of sizes.
#pragma once
#include "base.hpp"

namespace fb {

// Memory of one call, too large for the stack, from the start of a cache line on.
template <class T> struct Scratch {
  void* memory;
  T* data;
  explicit Scratch(int64_t count)
      : memory(__builtin_malloc((uint64_t)(count + 16) * sizeof(T) + 64)),
        data((T*)(((uint64_t)memory + 63) / 64 * 64)) {}
  ~Scratch() { __builtin_free(memory); }
  Scratch(const Scratch&) = delete;
};

FB int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
FB int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

}  // namespace fb

FB int64_t fl_floordiv(int64_t a, int64_t b) {
  int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}
FB int64_t fl_mod(int64_t a, int64_t b) {
  int64_t r = a % b;
  return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;
}
