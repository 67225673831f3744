// flambeau::philox_state: the part of a CUDA generator's stream that a generated kernel draws from.
//
// In: the device, how far the generator moves on, and how many threads the kernel assumed the device to keep resident.
// Out: three integers (seed, offset, base). base is -1 and the others are values; while a CUDA graph is captured they
// are device addresses of both, and base is added to the offset. Nothing of CUDA is linked: what only libtorch_cuda has
// is looked up when it is needed.
#include <ATen/Context.h>
#include <ATen/cuda/PhiloxCudaState.h>
#include <dlfcn.h>
#include <torch/library.h>

#include <array>
#include <mutex>
#include <tuple>

namespace flambeau {
namespace {

// A member function that returns a large struct takes the same registers as a free function with the object first.
using Advance = at::PhiloxCudaState (*)(void*, uint64_t);
using Attribute = int (*)(int*, int, int);

template <typename Function>
Function symbol_of(const char* library, const char* name, int flags) {
  void* handle = dlopen(library, RTLD_LAZY | flags);
  return handle == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(handle, name));
}

// Threads that all multiprocessors of a device hold at once; 0 where the driver does not say.
int64_t resident_threads(int device) {
  constexpr int processors = 16, threads_each = 39;  // CUdevice_attribute
  static const auto ask = symbol_of<Attribute>("libcuda.so.1", "cuDeviceGetAttribute", 0);
  int count = 0, each = 0;
  if (ask == nullptr || ask(&count, processors, device) != 0 || ask(&each, threads_each, device) != 0) return 0;
  constexpr int block = 256;
  return static_cast<int64_t>(count) * (each / block) * block;
}

int64_t known_threads(int device) {
  static std::mutex lock;
  static std::array<int64_t, 64> known{};
  const std::scoped_lock guard(lock);
  if (device < 0 || device >= static_cast<int>(known.size())) return resident_threads(device);
  if (known[device] == 0) known[device] = resident_threads(device);
  return known[device];
}

std::tuple<int64_t, int64_t, int64_t> philox_state(c10::Device device, int64_t increment, int64_t threads) {
  // Messages are joined here, not by TORCH_CHECK: it would use a stream, and one of this module crashes in torch's
  // process where the compiler links parts of the C++ library statically.
  TORCH_CHECK(device.is_cuda(), "a philox state belongs to a CUDA device, not to " + device.str());
  static const auto advance =
      symbol_of<Advance>("libtorch_cuda.so", "_ZN2at17CUDAGeneratorImpl17philox_cuda_stateEm", RTLD_NOLOAD);
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const int64_t found = known_threads(generator.device().index());
  TORCH_CHECK(found == 0 || found == threads, "this program draws random numbers as a GPU with " +
                                                  std::to_string(threads) + " resident threads does; " + device.str() +
                                                  " has " + std::to_string(found) +
                                                  ": compile it again on this device");
  const std::scoped_lock guard(generator.mutex());
  if (advance != nullptr) {
    const at::PhiloxCudaState state = advance(generator.unsafeGetGeneratorImpl(), static_cast<uint64_t>(increment));
    if (state.captured_) {
      return {reinterpret_cast<int64_t>(state.seed_.ptr), reinterpret_cast<int64_t>(state.offset_.ptr),
              static_cast<int64_t>(state.offset_intragraph_)};
    }
    return {static_cast<int64_t>(state.seed_.val), static_cast<int64_t>(state.offset_.val), -1};
  }
  const uint64_t offset = generator.get_offset();
  generator.set_offset(offset + static_cast<uint64_t>(increment));
  return {static_cast<int64_t>(generator.current_seed()), static_cast<int64_t>(offset), -1};
}

TORCH_LIBRARY_FRAGMENT(flambeau, library) {
  library.def("philox_state(Device device, int increment, int threads) -> (int, int, int)",
              {at::Tag::nondeterministic_seeded});
  library.impl("philox_state", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(philox_state));
}

}  // namespace
}  // namespace flambeau
