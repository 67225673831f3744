// The CUDA devices of one run. A program names its devices by slot; the inputs of a call say which device each slot is.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/SmallVector.h>

#include <vector>

namespace flambeau {

// torch's allocator of CUDA memory, the one that is chosen now.
c10::Allocator* cuda_allocator();

class Devices {
 public:
  static constexpr c10::DeviceIndex kUnknown = -1;

  // `pinned` has one entry a slot: an ordinal, or kUnknown where the inputs decide.
  explicit Devices(const std::vector<c10::DeviceIndex>& pinned) : ordinals_(pinned.begin(), pinned.end()) {}

  // An input in `slot` lies on the device `ordinal`; false where another input said otherwise.
  bool bind(size_t slot, c10::DeviceIndex ordinal) {
    if (ordinals_[slot] == kUnknown) ordinals_[slot] = ordinal;
    return ordinals_[slot] == ordinal;
  }
  c10::DeviceIndex operator[](size_t slot) const { return ordinals_[slot]; }
  bool empty() const { return ordinals_.empty(); }

  // All inputs are bound: slots that none of them decided are the current device, and slot 0 becomes the current
  // device.
  void begin();
  // Make `ordinal` the current device, for an allocation.
  void enter(c10::DeviceIndex ordinal) {
    if (current_ != ordinal) change(ordinal);
  }
  // The current stream of a device, as the driver knows it.
  void* stream(c10::DeviceIndex ordinal);
  // Python code ran: it may have chosen another device or stream.
  void refresh();
  // The caller's current device is current again. Safe to call always.
  void end() noexcept;

 private:
  const c10::impl::DeviceGuardImplInterface& guard();
  void change(c10::DeviceIndex ordinal);

  c10::SmallVector<c10::DeviceIndex, 4> ordinals_;
  const c10::impl::DeviceGuardImplInterface* guard_ = nullptr;
  c10::DeviceIndex outer_ = kUnknown, current_ = kUnknown, stream_of_ = kUnknown;
  void* stream_ = nullptr;
};

}  // namespace flambeau
