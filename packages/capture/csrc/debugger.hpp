// Whether somebody watches the frames of a thread, for whom they have to be the program's own.
#pragma once

#include "compat.hpp"
#include "thread_state.hpp"

namespace flambeau {

// `is_watched` where there is a trace function.
bool debugger_may_stop(ThreadState& state, PyObject* trace_function);

// Whether a debugger that is built on bdb (pdb is) may stop in a frame that starts now: it steps into calls, or
// breakpoints are set.
inline bool is_watched(ThreadState& state, const PyThreadState* thread) {
  return thread->c_traceobj != nullptr && debugger_may_stop(state, thread->c_traceobj);
}

}  // namespace flambeau
