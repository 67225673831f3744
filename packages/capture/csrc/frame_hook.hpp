// The PEP 523 hook: CPython asks it to evaluate every frame, while some region runs.
#pragma once

#include "compat.hpp"

namespace flambeau {

// Keeps the hook installed for a scope; the first scope installs it and the last one takes it away.
class HookInstalled {
 public:
  HookInstalled();
  ~HookInstalled();
  HookInstalled(const HookInstalled&) = delete;
  HookInstalled& operator=(const HookInstalled&) = delete;
};

// Takes the hook away for a scope, also from other threads, whose frames run as they are meanwhile: for the compiler's
// own frames, and for programs that nest calls deeper than evaluations may be nested.
class HookPaused {
 public:
  HookPaused();
  ~HookPaused();
  HookPaused(const HookPaused&) = delete;
  HookPaused& operator=(const HookPaused&) = delete;

 private:
  bool taken_away_;
};

bool hook_is_installed();

// Put the hook back on top, where another compiler's was set over it, or both were taken away, while a region runs.
void keep_hook_installed();

}  // namespace flambeau
