// One step from a value to another.
#pragma once

#include "flambeau/errors.hpp"
#include "guards/node.hpp"

namespace flambeau {

// The value `node` stands for, borrowed from `base`, the frame or `evaluation.owned`; NULL where there is none (an
// exception may be set).
PyObject* reach(const Node& node, PyObject* base, Evaluation& evaluation);

}  // namespace flambeau
