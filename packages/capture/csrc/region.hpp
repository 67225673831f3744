// Region: a callable whose frames are compiled. Disabled: a callable whose frames are not.
#pragma once

#include "code_cache.hpp"

namespace flambeau {

struct Region {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* callable;
  PyObject* handler;  // asked about frames that no entry covers
  PyObject* label;  // the user's name for it, or None
  PyObject* dict;
  PyObject* weak;
  Py_ssize_t limit;   // entries per code object
  bool told_too_deep;  // whether the handler knows of frames that are nested too deep to be captured
  bool told_nothing;  // whether the handler knows of a call that ran nothing that was compiled
  char strict;        // a call that runs no entry is an error, which the handler puts into words
  CodeTable* table;
  PyCodeObject* last_code;  // the record looked up last
  CodeEntries* last_record;
};

enum class Compiled { kEntry, kSkip, kBusy, kError };

// The region's record of a code object, made when it is new; NULL when memory is out.
CodeEntries* find_record(Region* region, PyCodeObject* code);

// Ask the handler about a frame that no entry covers. kError leaves a Python exception.
Compiled compile_frame(Region* region, CodeEntries& record, PyFunctionObject* function, const FrameView& view);

// A frame below the region's runs in plain Python for the depth of its calls: the handler tells so once, where that
// leaves it the frames.
void tell_too_deep(Region* region, PyCodeObject* code);

// A call of a region, and the same where the stance has a say in which entry is run (`stance.hpp`).
PyObject* call_region(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names);
PyObject* call_region_as_asked(PyObject* self, PyObject* const* arguments, size_t flags, PyObject* names);

void add_region_types(PyObject* module);

}  // namespace flambeau
