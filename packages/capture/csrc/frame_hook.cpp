// The PEP 523 hook: run a frame as it is, from the cache, or after asking the compiler.
#include "frame_hook.hpp"

#include "debugger.hpp"
#include "module_call.hpp"
#include "region.hpp"
#include "stance.hpp"
#include "tripwires.hpp"

namespace flambeau {
namespace {

// One interpreter is supported, so one of each counter; they change under the GIL.
Py_ssize_t installed = 0;
Py_ssize_t paused = 0;
_PyFrameEvalFunction before = nullptr;

constexpr int kNeverReplaced = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;

// A hook that was put on top of ours, and below it again by `keep_hook_installed`, hands frames on to ours: that frame
// is then run.
PyObject* run_plain(PyThreadState* thread, compat::Frame* frame, int throwing) {
  if (before == nullptr) return _PyEval_EvalFrameDefault(thread, frame, throwing);
  ThreadState& state = thread_state();
  compat::Frame* outer = std::exchange(state.handed_down, frame);
  PyObject* result = before(thread, frame, throwing);
  state.handed_down = outer;
  return result;
}

PyObject* run_inactive(ThreadState& state, PyThreadState* thread, compat::Frame* frame) {
  ActiveScope nothing(state, nullptr);
  return run_plain(thread, frame, 0);
}

bool is_nested_too_deep(ThreadState& state) {
  if (!state.stack.is_known()) state.stack = find_stack_half();
  return state.stack.has(__builtin_frame_address(0));
}

// Calls of Python are evaluated in one evaluation again, as many as the program's limit allows; nothing below is
// captured.
PyObject* run_unhooked(ThreadState& state, PyThreadState* thread, compat::Frame* frame, int throwing) {
  if (state.active != nullptr && !throwing) tell_too_deep(state.active, compat::frame_code(frame));
  ActiveScope nothing(state, nullptr);
  HookPaused unhooked;
  return run_plain(thread, frame, throwing);
}

// The frame of a part is nested in the frame that it is a part of, which counts already: programs may nest as many
// calls as in plain Python.
class Uncounted {
 public:
  Uncounted(PyThreadState* thread, bool is_part) : thread_(thread), frames_(is_part ? 1 : 0) {
    compat::add_frames(thread_, frames_);
  }
  ~Uncounted() { compat::add_frames(thread_, -frames_); }
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;

 private:
  PyThreadState* thread_;
  int frames_;
};

bool take(PyObject*& expected, PyObject* code) {
  if (expected != code) return false;
  expected = nullptr;
  return true;
}

PyObject* run_or_compile(ThreadState& state, PyThreadState* thread, compat::Frame* frame) {
  Region* region = state.active;
  PyCodeObject* code = compat::frame_code(frame);
  PyFunctionObject* function = compat::frame_function(frame);
  CodeEntries* record = find_record(region, code);
  if (record == nullptr) return run_plain(thread, frame, 0);  // out of memory was reported by the next allocation
  const Uncounted part(thread, record->is_part);
  if (record->skip_recursive) return run_inactive(state, thread, frame);
  if (record->skip) return run_plain(thread, frame, 0);

  FrameView view = view_of(function, frame->localsplus, parameter_count(code));
  view.owned = frame->localsplus;
  if (!record->skipped.empty() && record->skipped.contains(owner_of(view))) return run_plain(thread, frame, 0);
  bool hit = false;
  PyObject* result = nullptr;
  if (std::exchange(state.known_miss, nullptr) != record) {
    result = run_match(region, *record, function, view, hit);
  }
  if (!hit) {
    switch (compile_frame(region, *record, function, view)) {
      case Compiled::kEntry:
        result = run_first_match(region, *record, function, view, hit);
        if (record->has_once) drop_once(*record);
        if (!hit) return run_inactive(state, thread, frame);
        break;
      case Compiled::kSkip:
        return record->skip_recursive ? run_inactive(state, thread, frame) : run_plain(thread, frame, 0);
      case Compiled::kBusy: return run_inactive(state, thread, frame);
      case Compiled::kError: break;
    }
  }
  compat::finish_unstarted_frame(thread, frame);
  return result;
}

PyObject* evaluate_frame(PyThreadState* thread, compat::Frame* frame, int throwing) {
  ThreadState& state = thread_state();
  if (state.handed_down == frame) return _PyEval_EvalFrameDefault(thread, frame, throwing);
  if (state.tripwires != nullptr && !throwing && compat::frame_is_plain_call(frame) &&
      is_tripped(state, compat::frame_code(frame))) {
    compat::finish_unstarted_frame(thread, frame);
    return nullptr;
  }
  if (state.handed.values != nullptr && state.handed.code == reinterpret_cast<PyObject*>(compat::frame_code(frame)))
    state.handed.let_go();
  if (is_nested_too_deep(state)) {
    state.pass_code = state.skip_code = nullptr;
    state.known_miss = nullptr;
    return run_unhooked(state, thread, frame, throwing);
  }
  const compat::CallsInC calls(thread);  // how deep they are nested is seen by the stack
  // The compiler's own frames are nobody's business, another compiler's hook below ours included.
  if (state.suspended) return _PyEval_EvalFrameDefault(thread, frame, throwing);
  if (state.active == nullptr || throwing || !compat::frame_is_plain_call(frame)) {
    return run_plain(thread, frame, throwing);
  }
  // Callbacks and finalizers run wherever the collector happens to start: they are not calls of the frame that they
  // interrupt.
  if (compat::collector_runs(thread) && !state.entered_in_collection) return run_plain(thread, frame, 0);
  PyCodeObject* code = compat::frame_code(frame);
  auto* code_object = reinterpret_cast<PyObject*>(code);
  if (take(state.pass_code, code_object) || take(state.skip_code, code_object) ||
      (code->co_flags & CO_OPTIMIZED) == 0 || (code->co_flags & kNeverReplaced) != 0) {
    return run_plain(thread, frame, throwing);
  }
  // Trace functions and debuggers are not the program, and what a debugger stops in is to be the program's own.
  if (compat::is_tracing(thread) || is_watched(state, thread)) {
    ++state.runs;  // asked for: no failure of a strict region
    return run_plain(thread, frame, 0);
  }
  if (code->co_argcount > 0 && is_passed_through(code_object, frame->localsplus[0], state.active->callable)) {
    return run_plain(thread, frame, 0);
  }
  // The region may be dropped by what it runs.
  Ref region = Ref::share(reinterpret_cast<PyObject*>(state.active));
  return run_or_compile(state, thread, frame);
}

}  // namespace

HookInstalled::HookInstalled() {
  if (installed++ > 0) {
    if (paused > 0) keep_hook_installed();  // frames of another thread, or calls nested too deep, have taken it away
    return;
  }
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  const _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  before = current == _PyEval_EvalFrameDefault ? nullptr : current;
  _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate_frame);
}

HookInstalled::~HookInstalled() {
  if (--installed > 0) return;
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  // Somebody else's hook on top of ours stays: it will find our default behaviour through the thread state.
  if (_PyInterpreterState_GetEvalFrameFunc(interpreter) == evaluate_frame) {
    _PyInterpreterState_SetEvalFrameFunc(interpreter, before != nullptr ? before : _PyEval_EvalFrameDefault);
  }
}

HookPaused::HookPaused() : taken_away_(hook_is_installed()) {
  if (!taken_away_) return;
  ++paused;
  _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), before != nullptr ? before : _PyEval_EvalFrameDefault);
}

HookPaused::~HookPaused() {
  if (!taken_away_) return;
  --paused;
  keep_hook_installed();
}

void keep_hook_installed() {
  if (installed == 0 || hook_is_installed()) return;
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  const _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  before = current == _PyEval_EvalFrameDefault ? nullptr : current;
  _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate_frame);
}

bool hook_is_installed() { return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) == evaluate_frame; }

}  // namespace flambeau
