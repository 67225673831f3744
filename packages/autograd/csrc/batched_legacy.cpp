// The tensors of torch.autograd's own vmap; apart from functorch's, since torch's headers for both do not compile in
// one file.
#include <ATen/LegacyBatchedTensorImpl.h>

#include "batched.hpp"

namespace flambeau {

Batch legacy_batch_of(const at::Tensor& tensor) {
  const auto* wrapper = at::maybeGetBatchedImpl(tensor);
  if (wrapper == nullptr) return {-1, -1, true};
  const at::BatchDim& last = wrapper->bdims().back();
  return {last.level(), wrapper->value().size(last.dim()), true};
}

at::Tensor legacy_sample_of(const at::Tensor& tensor, const Batch& batch, int64_t place) {
  if (legacy_batch_of(tensor).level != batch.level) return tensor;
  const auto* wrapper = at::maybeGetBatchedImpl(tensor);
  const auto dims = wrapper->bdims();
  const int64_t removed = dims.back().dim();
  at::BatchDims others;
  for (const at::BatchDim& dim : dims.slice(0, dims.size() - 1)) {
    others.emplace_back(dim.level(), dim.dim() > removed ? dim.dim() - 1 : dim.dim());
  }
  at::Tensor sample = select_or_zeros(wrapper->value(), removed, place);
  return others.empty() ? sample : at::makeBatched(std::move(sample), std::move(others));
}

at::Tensor legacy_batched(const at::Tensor& stacked, const Batch& batch) {
  return at::addBatchDim(stacked, batch.level, 0);
}

}  // namespace flambeau
