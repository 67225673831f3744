#include "devices.hpp"

#include <c10/core/Stream.h>
#include <dlfcn.h>

#include <atomic>

namespace flambeau {
namespace {

// torch keeps the chosen CUDA allocator in one atomic pointer of libc10_cuda; a build of torch without CUDA has none,
// and a build for other hardware registers its allocator for the device type.
std::atomic<c10::Allocator*>* chosen_allocator() {
  void* library = dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  return static_cast<std::atomic<c10::Allocator*>*>(dlsym(library, "_ZN3c104cuda20CUDACachingAllocator9allocatorE"));
}

}  // namespace

c10::Allocator* cuda_allocator() {
  static std::atomic<c10::Allocator*>* const chosen = chosen_allocator();
  return chosen != nullptr ? chosen->load(std::memory_order_relaxed) : c10::GetAllocator(c10::kCUDA);
}

const c10::impl::DeviceGuardImplInterface& Devices::guard() {
  if (guard_ == nullptr) guard_ = c10::impl::getDeviceGuardImpl(c10::kCUDA);
  return *guard_;
}

void Devices::begin() {
  if (ordinals_.empty()) return;
  outer_ = current_ = guard().getDevice().index();
  for (c10::DeviceIndex& ordinal : ordinals_) {
    if (ordinal == kUnknown) ordinal = outer_;
  }
  enter(ordinals_[0]);
}

void Devices::change(c10::DeviceIndex ordinal) {
  if (outer_ == kUnknown) outer_ = guard().getDevice().index();
  guard().setDevice(c10::Device(c10::kCUDA, ordinal));
  current_ = ordinal;
}

void* Devices::stream(c10::DeviceIndex ordinal) {
  if (stream_of_ != ordinal) {
    stream_ = guard().getStreamNativeHandle(guard().getStream(c10::Device(c10::kCUDA, ordinal)));
    stream_of_ = ordinal;
  }
  return stream_;
}

void Devices::refresh() {
  stream_of_ = kUnknown;
  if (guard_ != nullptr) current_ = guard().getDevice().index();
}

void Devices::end() noexcept {
  if (outer_ != kUnknown && current_ != outer_) {
    guard_->uncheckedSetDevice(c10::Device(c10::kCUDA, outer_));
    current_ = outer_;
  }
}

}  // namespace flambeau
