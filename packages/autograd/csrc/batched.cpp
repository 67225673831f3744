#include "batched.hpp"

#include <ATen/functorch/BatchedTensorImpl.h>

namespace flambeau {

namespace functorch = at::functorch;

Batch batch_of(const torch::autograd::variable_list& tensors) {
  Batch found{-1, -1, false};
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    Batch own = legacy_batch_of(tensor);
    if (const auto* wrapper = functorch::maybeGetBatchedImpl(tensor)) {
      own = {wrapper->level(), wrapper->value().size(wrapper->bdim()), false};
    }
    if (own.level > found.level) found = own;
  }
  return found;
}

at::Tensor sample_of(const at::Tensor& tensor, const Batch& batch, int64_t place) {
  if (!tensor.defined()) return tensor;
  if (batch.legacy) return legacy_sample_of(tensor, batch, place);
  const auto* wrapper = functorch::maybeGetBatchedImpl(tensor);
  return wrapper == nullptr || wrapper->level() != batch.level
             ? tensor
             : select_or_zeros(wrapper->value(), wrapper->bdim(), place);
}

at::Tensor batched(const std::vector<at::Tensor>& samples, const Batch& batch) {
  at::Tensor stacked = at::stack(samples).narrow(0, 0, batch.size);
  return batch.legacy ? legacy_batched(stacked, batch) : functorch::makeBatched(std::move(stacked), 0, batch.level);
}

at::Tensor select_or_zeros(const at::Tensor& value, int64_t dim, int64_t place) {
  if (value.size(dim) > 0) return value.select(dim, place);
  auto sizes = value.sizes().vec();
  sizes.erase(sizes.begin() + dim);
  return at::zeros(sizes, value.options());
}

}  // namespace flambeau
