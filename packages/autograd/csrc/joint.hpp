// The joint function: a compiled forward and a compiled backward as one differentiable call.
#pragma once

#include <array>
#include <vector>

#include "compat.hpp"

namespace flambeau {

enum class Place { input, output, extra, written };

struct SavedPlace {
  Place place;
  int64_t index;
  bool is_tensor;
  int64_t shares;  // a result whose storage this value shares, or -1
  bool checked;    // whether a write to it before the backward is an error for any gradient; if not, it is watched
};

// A value that eager's nodes save, whether the compiled backward needs it or not: a write to it before the backward is
// an error.
struct WatchedPlace {
  Place place;  // an input, one that the caller writes once more after the call, or an output
  int64_t index;
  bool kept;  // eager's node holds the tensor itself, which must not be detached in place then
  std::vector<int64_t> reached;  // the places in differentiable whose gradients lead to a node that saves it
};

// Results that lead the engine to the same inputs, with gradients or without.
struct Front {
  std::vector<int64_t> places;  // in differentiable
  std::vector<int64_t> inputs;  // places in grad_inputs
};

// Plain data of one compiled graph; see `Signature` in records.py.
struct JointObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* forward;
  PyObject* backward;
  PyObject* take;  // the backward's method that empties a list of inputs, or null
  PyObject* twice;
  PyObject* rescue;  // asked where the backward raises, with what can be run instead, or null
  bool proven;       // the backward has run once without an error: from then on it may free what it is given
  PyObject* relaid;  // lays out gradients as eager does where a tangent lay otherwise than expected, or null
  bool changing;  // relaid wants to know sizes and numbers of the inputs too
  bool hands_on;  // relaid is asked as well where some tangents are absent
  // else the last tangents' strides for which it had nothing to lay out, none where absent
  std::vector<std::vector<int64_t>>* unmoved;
  bool forward_boxed;
  bool backward_boxed;
  size_t least_inputs;  // one more than the largest input that is referred to
  int64_t results;
  int64_t extras;
  std::vector<int64_t>* differentiable;
  std::vector<std::vector<int64_t>>* tangent_orders;
  std::vector<int64_t>* grad_inputs;
  // for each of grad_inputs the places in differentiable that it decides
  std::vector<std::vector<int64_t>>* reached_by;
  std::vector<SavedPlace>* saved;
  std::vector<WatchedPlace>* watched;
  // for each of differentiable the places that no backward can come through after its own
  std::vector<std::vector<int64_t>>* frees;
  std::vector<int64_t>* bumped;
  // Of each the backward is told whether any of these places in differentiable has a gradient: false and true, made
  // when first needed.
  std::vector<std::vector<int64_t>>* flagged;
  std::vector<std::array<at::Tensor, 2>>* flags;
  std::vector<Front>* fronts;  // one where all results lead to the same inputs
  // a backward may come again, through results for which eager saves nothing, when what was saved is gone
  bool repeats;
};

PyTypeObject* make_joint_type(PyObject* module);

// Call `function` with `args`, in a list when it is boxed. The result is a tuple or a list.
Ref call_compiled(PyObject* function, bool boxed, PyObject* const* args, size_t count, bool grad_mode);

// The tensor that says whether the places of one row of `flagged` have a gradient, on the device of that. The GIL is
// held.
const at::Tensor& flag_of(const JointObject* self, size_t row, bool given, const at::Device& device);

// Call `take` with a list that it empties, so that it may free what it used last. Where it raises before it begins, the
// list is as it was.
Ref call_taking(PyObject* take, PyObject* list);

// int64 sequence of a Python tuple.
std::vector<int64_t> integers(PyObject* sequence);

}  // namespace flambeau
