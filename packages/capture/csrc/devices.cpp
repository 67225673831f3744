#include "devices.hpp"

#include <c10/core/impl/FakeGuardImpl.h>

namespace flambeau {

// Entering a fake mode, torch puts the same stand-in there itself, but has a thread-local holder own it: when that
// thread ends, the table points to freed memory, and the next fake mode of any thread crashes. The entries of the table
// are never freed; nor is this one.
void keep_cuda_guard() {
  constexpr auto cuda = c10::DeviceType::CUDA;
  c10::impl::registerDeviceGuard(cuda, new c10::impl::FakeGuardImpl<cuda>());
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): never freed, see above

}  // namespace flambeau
