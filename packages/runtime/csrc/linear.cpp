// flambeau::linear and its two companions: products of float32 with a weight as linear layers have it, by the kernel of
// `gemm.hpp`.
//
// linear(x, weight, bias, most) is `x @ weight.t() + bias`, by the library where x has more rows than `most`, or so
// many that lanes of the kernel would stay empty: the number of rows may be known at run time only. packed_linear reads
// a weight that pack_linear_weight laid out: an ordinary tensor of (panels, terms, 32) floats. What the kernel does not
// do (other types, a processor without the instructions, products without elements) is the library's, with the same
// result. The result's memory comes from the cache of large blocks.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <torch/library.h>

#include <cmath>
#include <optional>
#include <string>

#include "blocks.hpp"
#include "gemm.hpp"

namespace flambeau {
namespace {

using Bias = std::optional<at::Tensor>;

bool is_plain(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && tensor.device().is_cpu() && tensor.layout() == at::kStrided &&
         !tensor.is_neg();
}

bool is_supported(const at::Tensor& x, const at::Tensor& weight, const Bias& bias) {
  static const bool supported = gemm::is_supported();
  const bool empty = x.numel() == 0 || weight.numel() == 0;
  return supported && !empty && is_plain(x) && is_plain(weight) && (!bias || is_plain(*bias));
}

at::Tensor by_library(const at::Tensor& x, const at::Tensor& weight, const Bias& bias) {
  return bias ? at::addmm(*bias, x, weight.t()) : at::mm(x, weight.t());
}

at::Tensor new_result(int64_t rows, int64_t columns) {
  const size_t bytes = static_cast<size_t>(rows) * static_cast<size_t>(columns) * sizeof(float);
  if (bytes < BlockCache::kSmallest) return at::empty({rows, columns}, at::kFloat);
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, BlockCache::instance().allocate(bytes), c10::GetCPUAllocator(), true);
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::CPU), caffe2::TypeMeta::Make<float>());
  made.unsafeGetTensorImpl()->set_sizes_contiguous({rows, columns});
  return made;
}

// Messages are joined as in philox.cpp.
void check_linear(bool holds, const char* what) { TORCH_CHECK(holds, std::string("flambeau::linear: ") + what); }

void check_shapes(const at::Tensor& x, int64_t columns, int64_t terms, const Bias& bias) {
  check_linear(x.dim() == 2 && x.size(1) == terms, "the rows do not have as many terms as the weight");
  check_linear(!bias || (bias->dim() == 1 && bias->size(0) == columns),
               "the bias does not have an element for each column");
}

// The terms of each row side by side.
at::Tensor with_rows(const at::Tensor& x) { return x.stride(1) == 1 || x.size(1) == 1 ? x : x.contiguous(); }

// Parts of the rows in turn; each thread packs what it needs for its own.
void by_parts(const gemm::Lanes& lanes, const gemm::Rows& rows, int64_t terms, const gemm::Result& result,
              const float* bias) {
  if (at::get_num_threads() == 1 || at::in_parallel_region()) {
    gemm::multiply(lanes, rows, terms, result, bias);
    return;
  }
  constexpr int64_t grain = 48;
  at::parallel_for(0, rows.count, grain, [&](int64_t begin, int64_t end) {
    const gemm::Rows part{rows.data + begin * rows.stride, end - begin, rows.stride};
    const gemm::Result out{result.data + begin * (result.turned ? 1 : result.stride), result.stride, result.turned};
    gemm::multiply(lanes, part, terms, out, bias != nullptr && result.turned ? bias + begin : bias);
  });
}

// Steps of the processor, about: a vector of lanes takes half a step for each row and term, packing an element a third,
// or one where it comes from memory, and turning one a third.
double steps(double lanes, double rows, double terms) {
  constexpr double vector = 16;
  return std::ceil(lanes / vector) * rows * terms / 2;
}

bool rows_are_lanes(const at::Tensor& x, const at::Tensor& weight) {
  if (weight.stride(1) != 1) return false;
  const auto rows = static_cast<double>(x.size(0)), columns = static_cast<double>(weight.size(0));
  const auto terms = static_cast<double>(x.size(1));
  constexpr double large = 1 << 18, turn = 0.3, pack = 0.3, fetch = 1;
  const double packing = (rows * terms + rows * columns) * turn;
  const double other = columns * terms * (columns * terms > large ? fetch : pack);
  return steps(rows, columns, terms) + packing < steps(columns, rows, terms) + other;
}

// Few rows leave the library's kernels idle; many leave ours idle only where they end shortly behind a vector.
bool is_better(int64_t rows, int64_t most) {
  constexpr int64_t few = 48, vector = 16;
  const int64_t lanes = (rows + vector - 1) / vector * vector;
  return rows <= most && (rows <= few || 5 * rows >= 4 * lanes);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const Bias& bias, int64_t most) {
  check_linear(weight.dim() == 2, "the weight is not a matrix");
  const int64_t columns = weight.size(0), terms = weight.size(1);
  check_shapes(x, columns, terms, bias);
  if (!is_supported(x, weight, bias) || !is_better(x.size(0), most)) return by_library(x, weight, bias);
  const Bias dense = bias ? Bias(bias->contiguous()) : std::nullopt;
  const float* added = dense ? dense->const_data_ptr<float>() : nullptr;
  at::Tensor result = new_result(x.size(0), columns);
  auto* out = result.mutable_data_ptr<float>();
  if (rows_are_lanes(x, weight)) {
    const gemm::Lanes lanes{x.const_data_ptr<float>(), x.size(0), x.stride(0), x.stride(1), false};
    by_parts(lanes, {weight.const_data_ptr<float>(), columns, weight.stride(0)}, terms, {out, columns, true}, added);
    return result;
  }
  const at::Tensor left = with_rows(x);
  const gemm::Lanes lanes{weight.const_data_ptr<float>(), columns, weight.stride(0), weight.stride(1), false};
  by_parts(lanes, {left.const_data_ptr<float>(), left.size(0), left.stride(0)}, terms, {out, columns, false}, added);
  return result;
}

at::Tensor pack_linear_weight(const at::Tensor& weight) {
  check_linear(weight.dim() == 2 && is_plain(weight), "the weight is not a matrix of float32 in memory");
  const int64_t columns = weight.size(0), terms = weight.size(1), panels = (columns + gemm::kLanes - 1) / gemm::kLanes;
  static const bool supported = gemm::is_supported();
  if (!supported || weight.numel() == 0) {
    at::Tensor whole = at::zeros({panels * gemm::kLanes, terms}, weight.options());
    whole.narrow(0, 0, columns).copy_(weight);
    return whole.view({panels, gemm::kLanes, terms}).transpose(1, 2).contiguous();
  }
  at::Tensor packed = at::empty({panels, terms, gemm::kLanes}, weight.options());
  const gemm::Lanes lanes{weight.const_data_ptr<float>(), columns, weight.stride(0), weight.stride(1), false};
  gemm::pack(lanes, terms, packed.mutable_data_ptr<float>());
  return packed;
}

at::Tensor packed_linear(const at::Tensor& x, const at::Tensor& packed, int64_t columns, const Bias& bias) {
  const bool fits = packed.dim() == 3 && packed.size(2) == gemm::kLanes && packed.is_contiguous() && columns >= 0;
  check_linear(fits && packed.size(0) == (columns + gemm::kLanes - 1) / gemm::kLanes,
               "the weight is not packed for so many columns");
  const int64_t terms = packed.size(1);
  check_shapes(x, columns, terms, bias);
  if (!is_supported(x, packed, bias)) {
    return by_library(x, packed.transpose(1, 2).reshape({packed.size(0) * gemm::kLanes, terms}).narrow(0, 0, columns),
                      bias);
  }
  const Bias dense = bias ? Bias(bias->contiguous()) : std::nullopt;
  const at::Tensor left = with_rows(x);
  at::Tensor result = new_result(x.size(0), columns);
  const gemm::Lanes lanes{packed.const_data_ptr<float>(), columns, gemm::kLanes, 1, true};
  by_parts(lanes, {left.const_data_ptr<float>(), left.size(0), left.stride(0)}, terms,
           {result.mutable_data_ptr<float>(), columns, false}, dense ? dense->const_data_ptr<float>() : nullptr);
  return result;
}

TORCH_LIBRARY_FRAGMENT(flambeau, library) {
  library.def("linear(Tensor x, Tensor weight, Tensor? bias, int most) -> Tensor");
  library.def("pack_linear_weight(Tensor weight) -> Tensor");
  library.def("packed_linear(Tensor x, Tensor packed, int columns, Tensor? bias) -> Tensor");
  library.impl("linear", c10::DispatchKey::CPU, TORCH_FN(linear));
  library.impl("pack_linear_weight", c10::DispatchKey::CPU, TORCH_FN(pack_linear_weight));
  library.impl("packed_linear", c10::DispatchKey::CPU, TORCH_FN(packed_linear));
}

}  // namespace
}  // namespace flambeau
