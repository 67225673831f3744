// What calls of regions do that is not the default: run as they are, from the cache alone, after other ranks, with
// fewer guards.
#pragma once

#include "code_cache.hpp"

namespace flambeau {

struct Region;

enum class Stance : int {
  kDefault,
  kEager,      // calls of regions are plain calls
  kRunOnly,    // what no entry covers runs as it is
  kFail,       // what no entry covers is an error, which the handler raises
  kElsewhere,  // the handler says which region is called in the place of each
};

// Of the process, changed under the GIL. A region's vectorcall is chosen by it, so that a call in the default stance
// reads none of this.
struct StanceState {
  Stance stance = Stance::kDefault;
  // of several entries only the guards in which they differ are looked at, of one entry none
  bool differing_only = false;
  PyObject* agree = nullptr;  // called with whether an entry fits; a false answer makes it a miss

  bool is_plain() const { return !differing_only && agree == nullptr; }
};

inline StanceState& stance_state() {
  static StanceState state;
  return state;
}

// How a region is called under the stance of the process.
vectorcallfunc call_of_region();

// `run_first_match` as the stance asks.
PyObject* run_match(Region* region, CodeEntries& record, PyFunctionObject* function, const FrameView& view, bool& hit);

PyObject* set_stance(PyObject* module, PyObject* args);

}  // namespace flambeau
