// Maximum flow for the partitioner.
#pragma once

#include "compat.hpp"

namespace flambeau {

// min_cut_side(count, tails, heads, capacities, source, sink) -> bytes: byte v is 1 when vertex v cannot reach the sink
// in the residual graph, i.e. lies on the source side of the minimum cut nearest to the sink.
PyObject* min_cut_side(PyObject* module, PyObject* args);

}  // namespace flambeau
