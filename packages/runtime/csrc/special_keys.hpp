// Which tensors are more, or other, than strided memory.
#pragma once

#include <c10/core/DispatchKeySet.h>

namespace flambeau {

// Keys of tensors that are not plain strided memory: lazily conjugated, wrapped, traced, sparse.
inline const c10::DispatchKeySet& special_keys() {
  using c10::DispatchKey;
  static const c10::DispatchKeySet keys({
      DispatchKey::Python,
      DispatchKey::Functionalize,
      DispatchKey::FuncTorchBatched,
      DispatchKey::FuncTorchGradWrapper,
      DispatchKey::Conjugate,
      DispatchKey::Negative,
      DispatchKey::ZeroTensor,
      DispatchKey::Batched,
      DispatchKey::Sparse,
      DispatchKey::SparseCsr,
      DispatchKey::NestedTensor,
      DispatchKey::MkldnnCPU,
  });
  return keys;
}

}  // namespace flambeau
