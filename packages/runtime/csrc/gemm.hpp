// Products of float32 matrices by a kernel of our own, for processors with AVX-512: `out[i, j] = sum over k of rows[i,
// k] * lanes[j, k] (+ bias)`.
//
// In: one operand whose vectors are loaded (`Lanes`) and one whose elements are broadcast (`Rows`), each with its terms
// in a row of their own. Out: the result, row by row or turned. Read `gemm.cpp` for how it goes, `linear.cpp` for who
// is which.
#pragma once

#include <cstdint>

namespace flambeau::gemm {

// Vectors in a panel, and its lanes.
constexpr int kVectors = 2;
constexpr int64_t kLanes = int64_t{kVectors} * 16;

// Whether the processor has the instructions.
bool is_supported();

// A matrix of `count` by `terms` elements; one of the strides should be 1.
struct Lanes {
  const float* data;
  int64_t count, stride, term_stride;
  // Whether `data` is what `pack` made of it.
  bool packed;
};

// A matrix of `count` by `terms` elements; the terms of a row follow each other.
struct Rows {
  const float* data;
  int64_t count, stride;
};

// Where the result goes: the element of row i and lane j is at [i * stride + j], or at [j * stride + i] if it is
// `turned`.
struct Result {
  float* data;
  int64_t stride;
  bool turned;
};

// Floats that `pack` writes.
int64_t packed_size(int64_t count, int64_t terms);

// Panels of `kLanes` lanes, term by term; lanes that are not there are zeros.
void pack(const Lanes& lanes, int64_t terms, float* out);

// `bias` has an element for each lane, for each row if the result is turned, or is null. `terms` is at least 1. One
// thread.
void multiply(const Lanes& lanes, const Rows& rows, int64_t terms, const Result& result, const float* bias);

}  // namespace flambeau::gemm
