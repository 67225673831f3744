// Gradients that `vmap` batches (`torch.autograd.grad(..., is_grads_batched=True)`, `jacobian(vectorize=True)`), taken
// apart for kernels, which read plain memory.
#pragma once

#include "compat.hpp"

namespace flambeau {

// One batch dimension, that of the innermost vmap.
struct Batch {
  int64_t level;
  int64_t size;
  bool legacy;  // torch.autograd's own vmap, which has tensors of another kind than functorch
};

// A batch dimension of any of the tensors; of size -1 where there is none.
Batch batch_of(const torch::autograd::variable_list& tensors);

// What one sample of the batch has in place of `tensor`; zeros for a batch without samples.
at::Tensor sample_of(const at::Tensor& tensor, const Batch& batch, int64_t place);

// The batched tensor of these samples, which are at least one.
at::Tensor batched(const std::vector<at::Tensor>& samples, const Batch& batch);

// The same for one kind of tensors. A `level` of -1: it is none of them.
Batch legacy_batch_of(const at::Tensor& tensor);
at::Tensor legacy_sample_of(const at::Tensor& tensor, const Batch& batch, int64_t place);
at::Tensor legacy_batched(const at::Tensor& stacked, const Batch& batch);

at::Tensor select_or_zeros(const at::Tensor& value, int64_t dim, int64_t place);

}  // namespace flambeau
