// flambeau::ordered_products: products of matrices in which every element of the result is one sum, added up in the
// order of its terms.
//
// ordered_products(x, y, bias, beta, alpha) is `beta * bias + alpha * (x @ y)` of matrices, or of as many matrices
// each, of any float type and strides; without bias `alpha * (x @ y)`. The terms are multiplied and added in float32
// (float64 for that), the result is rounded once. An element depends on its row, its column and the number of terms
// alone: not on how many rows, columns, matrices or threads there are, nor on how anything lies in memory. What a
// compiler makes of the loops over columns does not matter: multiplications are not contracted, and sums are never
// taken apart.
#ifdef __clang__
#pragma clang fp contract(off)
#else
#pragma GCC optimize("O3")
#pragma GCC optimize("fp-contract=off")
#endif

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace flambeau {
namespace {

// Rows and columns of a tile whose sums are kept while the terms are added; terms of a panel of columns that lie in the
// nearest caches.
constexpr int64_t kRows = 6, kColumns = 32, kTerms = 256;
// Multiplications worth another thread.
constexpr int64_t kGrain = 1 << 16;

void check(bool holds, const char* what) { TORCH_CHECK(holds, std::string("flambeau::ordered_products: ") + what); }

// One matrix of several, by strides in elements.
template <typename scalar>
struct Matrix {
  scalar* data;
  int64_t rows, columns;
};

// Adds the products of some terms: `sums[i][j] += left[i][k] * right[k][j]`, k in order.
// NOLINTBEGIN(bugprone-macro-parentheses): names and attributes stand in none
#define FB_ADD(NAME, TARGET) \
  TARGET void NAME(float* sums, const float* left, const float* right, int64_t terms) { \
    add(sums, left, right, terms); \
  } \
  TARGET void NAME(double* sums, const double* left, const double* right, int64_t terms) { \
    add(sums, left, right, terms); \
  }
// NOLINTEND(bugprone-macro-parentheses)

template <typename real>
__attribute__((always_inline)) inline void add(real* sums, const real* left, const real* right, int64_t terms) {
  // A vector of 64 bytes, which the compiler makes of whatever registers there are.
  using vector __attribute__((vector_size(64), aligned(alignof(real)), may_alias)) = real;
  constexpr int64_t lanes = 64 / sizeof(real), vectors = 32 / lanes;
  for (int64_t v = 0; v < vectors; v += 2) {
    vector kept[kRows][2];
#pragma GCC unroll 6
    for (int64_t i = 0; i < kRows; i++) {
#pragma GCC unroll 2
      for (int64_t w = 0; w < 2; w++)
        kept[i][w] = *reinterpret_cast<const vector*>(sums + i * kColumns + (v + w) * lanes);
    }
    for (int64_t k = 0; k < terms; k++) {
      vector column[2];
#pragma GCC unroll 2
      for (int64_t w = 0; w < 2; w++)
        column[w] = *reinterpret_cast<const vector*>(right + k * kColumns + (v + w) * lanes);
#pragma GCC unroll 6
      for (int64_t i = 0; i < kRows; i++) {
        const real factor = left[i * kTerms + k];
#pragma GCC unroll 2
        for (int64_t w = 0; w < 2; w++) kept[i][w] += factor * column[w];
      }
    }
#pragma GCC unroll 6
    for (int64_t i = 0; i < kRows; i++) {
#pragma GCC unroll 2
      for (int64_t w = 0; w < 2; w++) *reinterpret_cast<vector*>(sums + i * kColumns + (v + w) * lanes) = kept[i][w];
    }
  }
}

// NOLINTBEGIN(readability-non-const-parameter): `add` writes to the sums
FB_ADD(add_avx512, __attribute__((target("avx512f"))))
FB_ADD(add_avx2, __attribute__((target("avx2"))))
FB_ADD(add_plain, )
// NOLINTEND(readability-non-const-parameter)

enum class Instructions { Avx512, Avx2, Plain };

Instructions instructions() {
  static const Instructions found = __builtin_cpu_supports("avx512f") ? Instructions::Avx512
                                    : __builtin_cpu_supports("avx2")  ? Instructions::Avx2
                                                                      : Instructions::Plain;
  return found;
}

template <typename real>
void add_terms(real* sums, const real* left, const real* right, int64_t terms) {
  switch (instructions()) {
    case Instructions::Avx512: return add_avx512(sums, left, right, terms);
    case Instructions::Avx2: return add_avx2(sums, left, right, terms);
    case Instructions::Plain: return add_plain(sums, left, right, terms);
  }
}

// A panel of some terms of up to `kColumns` columns, term by term; columns that are not there are zeros.
template <typename scalar, typename real>
void pack(const scalar* from, const Matrix<const scalar>& y, int64_t terms, int64_t columns, real* panel) {
  if (y.columns == 1) {
    for (int64_t k = 0; k < terms; k++) {
      for (int64_t j = 0; j < columns; j++) panel[k * kColumns + j] = static_cast<real>(from[k * y.rows + j]);
    }
  } else {
    for (int64_t j = 0; j < columns; j++) {
      for (int64_t k = 0; k < terms; k++) panel[k * kColumns + j] = static_cast<real>(from[k * y.rows + j * y.columns]);
    }
  }
  for (int64_t k = 0; k < terms; k++) std::fill(panel + k * kColumns + columns, panel + (k + 1) * kColumns, real(0));
}

// Memory of one thread: terms of a panel of columns, terms of a tile of rows, and the sums of a panel, tile by tile.
template <typename real>
struct Scratch {
  std::vector<real> panel = std::vector<real>(kTerms * kColumns), left = std::vector<real>(kRows * kTerms), sums;
};

// The sums of rows `begin` to `end` of one product. `store(row, column, width, sums)` takes those of a row in a panel
// of columns.
template <typename scalar, typename real, typename Store>
void multiply(const Matrix<const scalar>& x, const Matrix<const scalar>& y, int64_t begin, int64_t end, int64_t terms,
              int64_t columns, Scratch<real>& scratch, const Store& store) {
  const int64_t tiles = (end - begin + kRows - 1) / kRows;
  for (int64_t j = 0; j < columns; j += kColumns) {
    const int64_t width = std::min(columns - j, kColumns);
    scratch.sums.assign(tiles * kRows * kColumns, real(0));
    for (int64_t k = 0; k < terms; k += kTerms) {
      const int64_t some = std::min(terms - k, kTerms);
      pack(y.data + k * y.rows + j * y.columns, y, some, width, scratch.panel.data());
      for (int64_t row = begin; row < end; row += kRows) {
        const int64_t high = std::min(end - row, kRows);
        for (int64_t i = 0; i < high; i++) {
          const scalar* from = x.data + (row + i) * x.rows + k * x.columns;
          for (int64_t t = 0; t < some; t++) scratch.left[i * kTerms + t] = static_cast<real>(from[t * x.columns]);
        }
        add_terms(scratch.sums.data() + (row - begin) * kColumns, scratch.left.data(), scratch.panel.data(), some);
      }
    }
    for (int64_t row = begin; row < end; row++) store(row, j, width, scratch.sums.data() + (row - begin) * kColumns);
  }
}

template <typename scalar>
void products(const at::Tensor& x, const at::Tensor& y, const std::optional<at::Tensor>& bias, double beta,
              double alpha, at::Tensor& out) {
  using real = at::opmath_type<scalar>;
  const int64_t batch = x.size(0), rows = x.size(1), terms = x.size(2), columns = y.size(2);
  const auto *xs = x.const_data_ptr<scalar>(), *ys = y.const_data_ptr<scalar>();
  const scalar* added = bias ? bias->const_data_ptr<scalar>() : nullptr;
  auto* result = out.mutable_data_ptr<scalar>();
  const auto scale = static_cast<real>(alpha), weight = static_cast<real>(beta);
  const int64_t grain = std::max<int64_t>(kGrain / std::max<int64_t>(terms * columns, 1), 1);
  at::parallel_for(0, batch * rows, grain, [&](int64_t begin, int64_t end) {
    Scratch<real> scratch;
    while (begin < end) {
      const int64_t matrix = begin / rows, first = begin % rows, last = std::min(rows, first + end - begin);
      const auto store = [&](int64_t i, int64_t column, int64_t width, const real* sums) {
        for (int64_t j = column; j < column + width; j++) {
          real value = sums[j - column];
          if (scale != real(1)) value = scale * value;
          if (added != nullptr && weight != real(0)) {
            const auto term =
                static_cast<real>(added[matrix * bias->stride(0) + i * bias->stride(1) + j * bias->stride(2)]);
            value = value + (weight == real(1) ? term : weight * term);
          }
          result[(matrix * rows + i) * columns + j] = static_cast<scalar>(value);
        }
      };
      multiply<scalar, real>({xs + matrix * x.stride(0), x.stride(1), x.stride(2)},
                             {ys + matrix * y.stride(0), y.stride(1), y.stride(2)}, first, last, terms, columns,
                             scratch, store);
      begin += last - first;
    }
  });
}

at::Tensor ordered_products(const at::Tensor& x, const at::Tensor& y, const std::optional<at::Tensor>& bias,
                            double beta, double alpha) {
  check(x.dim() >= 2 && y.dim() == x.dim(), "operands are matrices, or as many matrices each");
  check(at::isFloatingType(x.scalar_type()) && x.scalar_type() == y.scalar_type(),
        "operands are of one type, of floats");
  check(x.size(-1) == y.size(-2) && x.sizes().slice(0, x.dim() - 2) == y.sizes().slice(0, y.dim() - 2),
        "operands do not fit each other");
  check(!bias || bias->scalar_type() == x.scalar_type(), "the bias is of another type");
  std::vector<int64_t> sizes(x.sizes().begin(), x.sizes().end());
  sizes.back() = y.size(-1);
  at::Tensor out = at::empty(sizes, x.options().memory_format(at::MemoryFormat::Contiguous));
  if (out.numel() == 0) return out;
  // As three dimensions: matrices, rows, columns.
  const auto whole = [](const at::Tensor& t) {
    int64_t count = 1;
    for (int64_t d = 0; d < t.dim() - 2; d++) count *= t.size(d);
    return t.resolve_neg().reshape({count, t.size(-2), t.size(-1)});
  };
  std::optional<at::Tensor> wide;
  if (bias) wide = whole(bias->expand(sizes));
  const at::Tensor left = whole(x), right = whole(y);
  at::Tensor result = whole(out);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "ordered_products",
                                  [&] { products<scalar_t>(left, right, wide, beta, alpha, result); });
  return out;
}

TORCH_LIBRARY_FRAGMENT(flambeau, library) {
  library.def("ordered_products(Tensor x, Tensor y, Tensor? bias=None, float beta=1, float alpha=1) -> Tensor");
  library.impl("ordered_products", c10::DispatchKey::CPU, TORCH_FN(ordered_products));
}

}  // namespace
}  // namespace flambeau
