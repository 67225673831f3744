// Arguments of calls: planned once (against an operator's schema where there is one), filled in from registers at run
// time.
#pragma once

#include "program.hpp"

namespace flambeau {

// Plan a call of operator `name`.`overload`. `args` is a tuple of encoded arguments, `kwargs` of (name, argument)
// pairs.
Call plan_call(const char* name, const char* overload, PyObject* args, PyObject* kwargs, std::vector<Out> outs);

// Plan an argument of a Python function or a subprogram, which have no schema.
Argument plan_any(PyObject* encoded);

// ("s", i), ("t", i) or ("l", items): the tag, or 0 for a plain value.
char tag_of(PyObject* encoded);
int32_t register_of(PyObject* encoded);
// An int, a float or a bool. Throws PythonError for anything else.
Value value_of(PyObject* number);

// The registers as IValues.
c10::IValue boxed_scalar(const Value& value, Argument::Want want);
c10::IValue boxed_list(const std::vector<c10::IValue>& items, Argument::Want want);

}  // namespace flambeau
