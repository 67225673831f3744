// Inputs into registers: cheap checks here, everything unusual in Python (flambeau_runtime/inputs.py), which decides.
#pragma once

#include "frame.hpp"

namespace flambeau {

// Fill the frame from `inputs`. `misfit` is called as misfit(position, value, scalars, devices) for an input that fails
// a check: it raises, or returns what to use instead.
void bind_inputs(const Program& program, Frame& frame, PyObject* const* inputs, PyObject* misfit);

// The scalars of a frame as a Python tuple.
Ref scalars_tuple(const Frame& frame);
Ref python_scalar(const Value& value);

}  // namespace flambeau
