// Allocations and launches on CUDA devices: what `alloc` and `launch` of run.cpp do for the CPU.
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "run.hpp"

namespace flambeau {
namespace {

constexpr uint64_t kAlignment = 16;

[[noreturn]] void fail(const std::string& message) { throw ProgramError(ProgramError::Type::Runtime, message); }

// A buffer's address, as the kernel on `device` may read it. A one-element tensor that a library call left on the CPU
// is copied.
uint64_t address(int32_t reg, c10::Device device, Frame& frame) {
  const at::Tensor& tensor = frame.tensor(reg);
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->device() != device) {
    if (!impl->device().is_cpu() || impl->dim() != 0) {
      fail("a kernel on " + device.str() + " was given a tensor on " + impl->device().str());
    }
    const at::AutoDispatchBelowADInplaceOrView below;
    frame.set(reg, tensor.to(device));
  }
  return reinterpret_cast<uint64_t>(frame.tensor(reg).data_ptr());
}

// The device of a launch: that of its tensors.
c10::Device device_of(const Launch& launch, const Frame& frame) {
  for (const int32_t reg : launch.buffers) {
    const c10::Device device = frame.tensor(reg).unsafeGetTensorImpl()->device();
    if (device.is_cuda()) return device;
  }
  fail("a Triton kernel was given no tensor on a CUDA device");
}

// False for an empty grid. Without one, the extent is the number of blocks.
bool grid_of(const Launch& launch, const Frame& frame, uint32_t (&grid)[3]) {
  bool any = true;
  for (size_t i = 0; i < 3; ++i) {
    const Operand* operand = launch.grid.empty() ? (i == 0 ? &launch.extent : nullptr) : &launch.grid[i];
    const int64_t size = operand == nullptr ? 1 : frame.operand(*operand).as_int();
    if (size < 0 || size > INT32_MAX) fail("a grid of " + std::to_string(size) + " blocks cannot be launched");
    grid[i] = static_cast<uint32_t>(size);
    any = any && size != 0;
  }
  return any;
}

// Memory for one launch: given back at once, and reused only by what is queued on the stream later.
c10::DataPtr scratch(int64_t bytes, const uint32_t (&grid)[3]) {
  if (bytes == 0) return {};
  return cuda_allocator()->allocate(static_cast<size_t>(bytes) * grid[0] * grid[1] * grid[2]);
}

}  // namespace

void alloc_cuda(const Alloc& alloc, Frame& frame, Gil& gil) {
  Sizes size_room, stride_room;
  const c10::IntArrayRef sizes = resolve(alloc.sizes, frame, size_room);
  const c10::IntArrayRef strides = resolve(alloc.strides, frame, stride_room);
  const auto size = static_cast<size_t>(bytes_of(alloc, sizes, strides));
  // The allocator may wait for the device.
  gil.release();
  frame.devices.enter(frame.devices[static_cast<size_t>(alloc.device.index())]);
  c10::Allocator* allocator = cuda_allocator();
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), size,
                                                       allocator->allocate(size), allocator, /*resizable=*/true);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(c10::DispatchKey::CUDA), alloc.dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  frame.set(alloc.out, std::move(tensor));
}

void launch_cuda(const Launch& launch, Frame& frame, Gil& gil) {
  uint32_t grid[3];
  if (!grid_of(launch, frame, grid)) return;
  const CudaKernel& kernel = *launch.kernel->cuda;
  const auto& parameters = kernel.parameters();
  const size_t buffers = launch.buffers.size(), count = buffers + launch.scalars.size();
  if (count != parameters.size())
    fail("a kernel of " + std::to_string(parameters.size()) + " parameters was given others");

  gil.release();
  const c10::Device device = device_of(launch, frame);
  frame.devices.enter(device.index());
  c10::SmallVector<uint64_t, 24> values(count + 2);
  uint64_t odd = 0;  // what promised numbers have below a multiple of 16
  for (size_t i = 0; i < count; ++i) {
    values[i] = i < buffers ? address(launch.buffers[i], device, frame)
                            : CudaKernel::pack(frame.operand(launch.scalars[i - buffers]), parameters[i].type);
    if (parameters[i].divisible) odd |= values[i];
  }
  const cuda::Function& function = kernel.function(odd % kAlignment == 0, device.index(), gil);
  // Triton adds two pointers to every kernel: scratch memory, and that of its profiler.
  const c10::DataPtr global = scratch(function.global_scratch, grid), profile = scratch(function.profile_scratch, grid);
  values[count] = reinterpret_cast<uint64_t>(global.get());
  values[count + 1] = reinterpret_cast<uint64_t>(profile.get());
  c10::SmallVector<void*, 24> addresses(values.size());
  for (size_t i = 0; i < values.size(); ++i) addresses[i] = &values[i];
  gil.release();
  cuda::launch(function, grid, frame.devices.stream(device.index()), addresses.data());
}

}  // namespace flambeau
