// Everything that differs between CPython 3.11, 3.12 and 3.13 behind one set of names.
#pragma once

#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include <Python.h>
#include <frameobject.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000
#error "flambeau-capture supports CPython 3.11, 3.12 and 3.13"
#endif

// CPython's internal headers are C: these words are keywords or absent in C++.
#define FB_312 (PY_VERSION_HEX >= 0x030C0000)
#define FB_313 (PY_VERSION_HEX >= 0x030D0000)

// C's atomics are not C++'s; without them the headers take the compiler's own, of the same layout.
#undef HAVE_STD_ATOMIC
// The public headers' macro of this name would rename the internal ones' function.
#undef _PyGC_FINALIZED

extern "C" {
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
}

namespace flambeau::compat {

using Frame = _PyInterpreterFrame;

inline PyCodeObject* frame_code(const Frame* frame) {
#if FB_313
  return reinterpret_cast<PyCodeObject*>(frame->f_executable);
#else
  return frame->f_code;
#endif
}

inline PyFunctionObject* frame_function(const Frame* frame) {
#if FB_312
  return reinterpret_cast<PyFunctionObject*>(frame->f_funcobj);
#else
  return frame->f_func;
#endif
}

// A call's own frame on the thread's data stack, not a generator's and not one CPython made for itself.
inline bool frame_is_plain_call(const Frame* frame) {
  return frame->owner == FRAME_OWNED_BY_THREAD && frame->frame_obj == nullptr;
}

// Whether the garbage collector runs (in this thread or in one that it let go on).
inline bool collector_runs(const PyThreadState* thread) { return thread->interp->gc.collecting != 0; }

// Whether what the interpreter tells of the program runs: a function of sys.settrace, sys.setprofile or sys.monitoring.
inline bool is_tracing(const PyThreadState* thread) { return thread->tracing > 0; }

// How many more frames of Python may be nested before CPython raises RecursionError, and how many there may be at all.
struct FramesLeft {
  int left;
  int limit;
};

inline FramesLeft frames_left(const PyThreadState* thread) {
#if FB_312
  return {thread->py_recursion_remaining, thread->py_recursion_limit};
#else
  return {thread->recursion_remaining, thread->recursion_limit};
#endif
}

// Changes how many more frames may be nested.
inline void add_frames(PyThreadState* thread, int count) {
#if FB_312
  thread->py_recursion_remaining += count;
#else
  thread->recursion_remaining += count;
#endif
}

// Gives a scope as many nested calls in C as a thread begins with. From 3.12 on CPython limits their number, and counts
// the evaluation of each call of Python among them where a hook is installed.
class CallsInC {
 public:
#if FB_312
  explicit CallsInC(PyThreadState* thread) : remaining_(&thread->c_recursion_remaining), before_(*remaining_) {
    *remaining_ = kLimit;
  }
  ~CallsInC() { *remaining_ = before_; }
#else
  explicit CallsInC(PyThreadState*) {}
#endif
  CallsInC(const CallsInC&) = delete;
  CallsInC& operator=(const CallsInC&) = delete;

#if FB_312
 private:
#if FB_313
  static constexpr int kLimit = Py_C_RECURSION_LIMIT;
#else
  static constexpr int kLimit = C_RECURSION_LIMIT;
#endif
  int* remaining_;
  int before_;
#endif
};

// From 3.12 on, whoever evaluates a frame also clears and pops it; in 3.11 the caller of the evaluation function does.
// A frame that was never started holds its locals, its function and its code, and nothing links to it.
inline void finish_unstarted_frame(PyThreadState* thread, Frame* frame) {
#if FB_312
  for (int i = 0; i < frame->stacktop; ++i) Py_XDECREF(frame->localsplus[i]);
  frame->stacktop = 0;
  Py_XDECREF(frame->f_locals);
  Py_DECREF(frame->f_funcobj);
  Py_DECREF(reinterpret_cast<PyObject*>(frame_code(frame)));
  auto** base = reinterpret_cast<PyObject**>(frame);
  _PyStackChunk* chunk = thread->datastack_chunk;
  if (base != &chunk->data[0]) {
    thread->datastack_top = base;
    return;
  }
  // The frame is the first of its chunk of the data stack: the chunk goes with it.
  _PyStackChunk* previous = chunk->previous;
  thread->datastack_chunk = previous;
  PyObjectArenaAllocator arena;
  PyObject_GetArenaAllocator(&arena);
  arena.free(arena.ctx, chunk, chunk->size);
  thread->datastack_limit = reinterpret_cast<PyObject**>(reinterpret_cast<char*>(previous) + previous->size);
  thread->datastack_top = &previous->data[previous->top];
#else
  (void)thread;
  (void)frame;
#endif
}

// The attribute as a new reference; NULL without an exception where there is none, NULL with one on errors.
inline int lookup_attribute(PyObject* object, PyObject* name, PyObject** result) {
#if FB_313
  return PyObject_GetOptionalAttr(object, name, result);
#else
  return _PyObject_LookupAttr(object, name, result);
#endif
}

// A number that changes with every write to the class or one of its bases; 0 while the class has none.
inline unsigned int version_of(PyTypeObject* type) {
#if FB_312
  return type->tp_version_tag;
#else
  return PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG) ? type->tp_version_tag : 0;
#endif
}

// A number that changes with every write to the dict; no dict has 0.
inline uint64_t version_of_dict(PyObject* dict) { return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag; }

// The same of a dict that may be the attributes of an object, or 0 where it is not told of every write: from 3.13 on an
// attribute can be stored in values that the object shares with its dict.
inline uint64_t version_of_attributes([[maybe_unused]] PyObject* dict) {
#if FB_313
  return 0;
#else
  return version_of_dict(dict);
#endif
}

// The namespace of a class, as a new reference.
inline PyObject* class_namespace(PyTypeObject* type) {
#if FB_312
  return PyType_GetDict(type);
#else
  return Py_XNewRef(type->tp_dict);
#endif
}

}  // namespace flambeau::compat
