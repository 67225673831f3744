// What calls of compiled frames show in torch's profiler: the look through the entries, and the run of the one that
// fits.
#pragma once

#include <ATen/record_function.h>

#include <optional>

#include "code_cache.hpp"

namespace flambeau {

// Whether somebody listens on this thread.
inline bool is_profiled() { return at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION).has_value(); }

// A range of the profiler, open while it lives.
class OpenRange {
 public:
  explicit OpenRange(const char* name);
  // `Torch-Compiled Region: <frame>/<entry>`, as in torch.compile's traces, and the user's name for the region; with
  // the function and its place.
  OpenRange(const Region* region, const CodeEntries& record, const Entry& entry);

 private:
  at::RecordFunction guard_;
};

}  // namespace flambeau
