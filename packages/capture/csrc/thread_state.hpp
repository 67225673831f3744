// What one thread is doing: which region runs, and what the frame hook must let pass.
#pragma once

#include <utility>

#include "compat.hpp"

namespace flambeau {

struct Region;
struct CodeEntries;
struct Tripwires;

// References that are let go when a frame of `code` starts, which by then has its own.
struct Handed {
  PyObject** values = nullptr;
  Py_ssize_t count = 0;
  PyObject* code = nullptr;

  void let_go() {
    for (PyObject** value = std::exchange(values, nullptr); count > 0; --count, ++value) Py_CLEAR(*value);
  }
};

// The farther half of a thread's stack, in addresses. While the hook is installed CPython evaluates each call of Python
// within its caller's evaluation, on this stack, which plain Python does not need and whose end is the end of the
// process.
struct StackHalf {
  const char* end = nullptr;
  const char* begin = nullptr;

  bool is_known() const { return begin != nullptr; }
  bool has(const void* here) const { return here >= end && here < begin; }
};

// The calling thread's; empty where the system does not tell.
StackHalf find_stack_half();

struct ThreadState {
  Region* active = nullptr;             // frames that start are this region's; NULL: frames run as they are
  bool entered_in_collection = false;   // the active region was called by what the garbage collector runs
  PyObject* pass_code = nullptr;        // the next frame of this code is a rewritten one of ours
  PyObject* skip_code = nullptr;        // the next frame of this code runs as it is, frames it calls do not
  Handed handed{};                      // what the frame about to start takes over
  CodeEntries* known_miss = nullptr;  // guards of this record were just found not to hold for the frame about to start
  unsigned long long runs = 0;  // how often an entry was run: a strict region sees whether its call ran one
  int inside = 0;  // calls of regions that run frames under the hook
  bool run_only = false;  // what no entry covers runs as it is, on this thread
  bool suspended = false;  // the compiler itself runs: calls of regions are plain calls
  Tripwires* tripwires = nullptr;  // code that must not run now
  compat::Frame* handed_down = nullptr;  // runs under the hook that was there before ours
  StackHalf stack{};  // where frames are nested too deep to be evaluated one within the other
};

inline ThreadState& thread_state() {
  static thread_local ThreadState state;
  return state;
}

// Runs a scope with another active region (or none).
class ActiveScope {
 public:
  ActiveScope(ThreadState& state, Region* region)
      : state_(state), before_(state.active), in_collection_before_(state.entered_in_collection) {
    state.active = region;
    if (region == nullptr) return;
    state.entered_in_collection = compat::collector_runs(PyThreadState_Get());
    ++state.inside;
    entered_ = 1;
  }
  ~ActiveScope() {
    state_.inside -= entered_;
    state_.active = before_;
    state_.entered_in_collection = in_collection_before_;
  }
  ActiveScope(const ActiveScope&) = delete;
  ActiveScope& operator=(const ActiveScope&) = delete;

 private:
  ThreadState& state_;
  Region* before_;
  bool in_collection_before_;
  int entered_ = 0;
};

// Runs a scope (guards, the compiler) in which frames are left alone and calls of regions are plain calls: what it
// checks may be the user's Python code, and looking at that code's frames would check it again without end.
class SuspendedScope {
 public:
  explicit SuspendedScope(ThreadState& state) : state_(state), active_(state, nullptr), before_(state.suspended) {
    state.suspended = true;
  }
  ~SuspendedScope() { state_.suspended = before_; }
  SuspendedScope(const SuspendedScope&) = delete;
  SuspendedScope& operator=(const SuspendedScope&) = delete;

 private:
  ThreadState& state_;
  ActiveScope active_;
  bool before_;
};

}  // namespace flambeau
