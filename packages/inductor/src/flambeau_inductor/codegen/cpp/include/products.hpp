// Products of matrices of float32: the right one is packed in strips of a few registers of columns, so that a few rows
// of the left one and a strip are multiplied without a result leaving the registers.
#pragma once
#include "loops.hpp"
#include "transposes.hpp"

namespace fb {

constexpr int columns_of_register = register_bytes / 4;
// Registers that hold results: the others hold a row of a strip, and an element of the left matrix in all lanes.
constexpr int result_registers = FB_AVX512 ? 24 : 12;
constexpr int most_rows = 12;

// How wide a strip is, in registers, of a matrix with so many columns: few columns that are not there, and a strip that
// is not narrow.
constexpr int strip_registers(int64_t columns) {
  const int64_t registers = (columns + columns_of_register - 1) / columns_of_register;
  int best = 1;
  int64_t least = registers * 130;
  for (int width = 2; width <= (FB_AVX512 ? 4 : 3); ++width) {
    const int64_t cost = (registers + width - 1) / width * width * (width == 2 ? 103 : 100);
    if (cost <= least) least = cost, best = width;
  }
  return best;
}

// A packed matrix of this many columns: strip after strip, each row by row.
template <int64_t Columns> struct Strips {
  static constexpr int registers = strip_registers(Columns);
  static constexpr int64_t width = registers * columns_of_register;
  static constexpr int64_t count = (Columns + width - 1) / width;
  static constexpr int rows = result_registers / registers < most_rows ? result_registers / registers : most_rows;
  // Rows at a time of those that are left over.
  static constexpr int few = rows % 3 == 0 ? rows / 3 : rows / 4 > 0 ? rows / 4 : 1;
};

// result[r][lane] = (or +=) the sum over t of left[r][t] * strip[t][lane].
template <int Rows, int Registers, bool Adds>
__attribute__((noinline)) void multiply_tile(const float* left, int64_t left_step, int64_t terms, const float* strip,
                                             float* result, int64_t result_step) {
  constexpr int W = columns_of_register;
  typedef Vec<float, W> V;
  V sum[Rows][Registers];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Registers; ++v) sum[r][v] = Adds ? load<W>(result + r * result_step + v * W, Full{}) : V(0.0f);
  for (int64_t t = 0; t < terms; ++t, strip += Registers * W) {
    V right[Registers];
#pragma GCC unroll 4
    for (int v = 0; v < Registers; ++v) right[v] = load<W>(strip + v * W, Full{});
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      const V factor(left[r * left_step + t]);
#pragma GCC unroll 4
      for (int v = 0; v < Registers; ++v) sum[r][v] = fma(factor, right[v], sum[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Registers; ++v) store(result + r * result_step + v * W, sum[r][v], Full{});
}

// All rows of one strip. Rows up to the next multiple of Strips::few may be read, and written.
template <int64_t Columns, bool Adds>
FB void multiply_strip(const float* left, int64_t left_step, int64_t rows, int64_t terms, const float* strip,
                       float* result, int64_t result_step) {
  typedef Strips<Columns> S;
  int64_t r = 0;
  for (; r + S::rows <= rows; r += S::rows)
    multiply_tile<S::rows, S::registers, Adds>(left + r * left_step, left_step, terms, strip, result + r * result_step,
                                               result_step);
  for (; r < rows; r += S::few)
    multiply_tile<S::few, S::registers, Adds>(left + r * left_step, left_step, terms, strip, result + r * result_step,
                                              result_step);
}

// Columns from `first` below `last`, and what else is in their strips, of the rows of a product.
template <int64_t Columns>
FB void multiply_rows(const float* left, int64_t left_step, int64_t rows, int64_t terms, const float* packed,
                      int64_t first, int64_t last, float* result, int64_t result_step) {
  typedef Strips<Columns> S;
  for (int64_t s = first / S::width; s * S::width < last; ++s)
    multiply_strip<Columns, false>(left, left_step, rows, terms, packed + s * terms * S::width, result + s * S::width,
                                   result_step);
}

// The terms from `first` below `last` of a product, some at a time, which stay in the nearest cache for all rows.
template <int64_t Columns, int64_t Terms>
FB void multiply_terms(const float* left, int64_t left_step, int64_t rows, const float* packed, int64_t first,
                       int64_t last, float* result, int64_t result_step) {
  typedef Strips<Columns> S;
  constexpr int64_t some = 128;
  for (int64_t s = 0; s < S::count; ++s)
    multiply_strip<Columns, false>(left + first, left_step, rows, larger(0, smaller(some, last - first)),
                                   packed + (s * Terms + first) * S::width, result + s * S::width, result_step);
  if constexpr (Terms > some)
    for (int64_t t = first + some; t < last; t += some)
      for (int64_t s = 0; s < S::count; ++s)
        multiply_strip<Columns, true>(left + t, left_step, rows, smaller(some, last - t),
                                      packed + (s * Terms + t) * S::width, result + s * S::width, result_step);
}

// A matrix whose columns and rows lie that far apart, packed; columns that are not there are zero.
template <int64_t Columns, int64_t ColumnStep, int64_t RowStep> FB void pack(const float* source, int64_t rows,
                                                                             float* packed) {
  typedef Strips<Columns> S;
  constexpr int W = columns_of_register;
  for (int64_t c = 0; c < S::count * S::width; c += W) {
    const int64_t here = larger(0, smaller(W, Columns - c));
    float* const to = packed + c / S::width * S::width * rows + c % S::width;
    const float* const from = source + c * ColumnStep;
    if constexpr (ColumnStep == 1) {
      const Lanes<W> there = first<W>(here);
      for (int64_t r = 0; r < rows; ++r) store(to + r * S::width, load<W>(from + r * RowStep, there), Full{});
    } else {
      if (here < W)
        for (int64_t r = 0; r < rows; ++r) store(to + r * S::width, Vec<float, W>(0.0f), Full{});
      if constexpr (RowStep == 1) {
        if (here > 0)
          for (int64_t r = 0; r < rows; r += W)
            turn<W>(from + r, ColumnStep, here, smaller(W, rows - r), to + r * S::width, S::width);
      } else {
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t k = 0; k < here; ++k) to[r * S::width + k] = from[k * ColumnStep + r * RowStep];
      }
    }
  }
}

// Rows side by side in memory of the call, and zeros in those up to `Rows`.
template <int64_t Rows, int64_t Columns> FB void copy_rows(const float* source, int64_t row_step, int64_t column_step,
                                                           int64_t rows, float* copy) {
  constexpr int W = columns_of_register;
  for (int64_t r = 0; r < Rows; ++r)
    if (column_step == 1 && r < rows)
      for (int64_t c = 0; c < Columns; c += W) {
        const Lanes<W> here = first<W>(smaller(W, Columns - c));
        store(copy + r * Columns + c, load<W>(source + r * row_step + c, here), here);
      }
    else
      for (int64_t c = 0; c < Columns; ++c)
        copy[r * Columns + c] = r < rows ? source[r * row_step + c * column_step] : 0.0f;
}

}  // namespace fb
