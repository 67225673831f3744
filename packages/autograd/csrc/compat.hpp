// What differs between the supported torch versions, and the headers every file here needs.
#pragma once

#include <torch/csrc/python_headers.h>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

#include "flambeau/errors.hpp"
#include "flambeau/refs.hpp"

namespace flambeau {

// Found by overload: `deleteNode` exists only where it is needed.
template <typename N>
auto torch_delete_node(N* node, int) -> decltype(deleteNode(node)) {
  return deleteNode(node);
}
template <typename N>
void torch_delete_node(N* node, long) {
  delete node;
}

// Newer releases of torch tell the program's hooks of each node that comes to be, once it is complete. Found as above.
template <typename Owner>
auto announce_node(const Owner& owner, int) -> decltype(fire_node_creation_hooks(owner)) {
  return fire_node_creation_hooks(owner);
}
template <typename Owner>
void announce_node(const Owner&, long) {}

// Edges own nodes through std::shared_ptr in older releases of torch and through intrusive_ptr in newer ones.
using NodePtr = decltype(torch::autograd::Edge::function);

// Node graphs may be deep; torch's own deleter unwinds them without recursion where owners are std::shared_ptr.
template <typename Owner>
void delete_node(torch::autograd::Node* node) {
  if constexpr (std::is_same_v<Owner, std::shared_ptr<torch::autograd::Node>>) {
    torch_delete_node(node, 0);
  }
}

// Make a node owned as this torch wants it; the raw pointer is valid as long as the owner.
template <typename Made, typename Owner = NodePtr, typename... Args>
std::pair<Made*, Owner> make_node(Args&&... args) {
  if constexpr (std::is_same_v<Owner, std::shared_ptr<torch::autograd::Node>>) {
    Made* made = new Made(std::forward<Args>(args)...);
    return {made, Owner(made, delete_node<Owner>)};
  } else {
    auto made = c10::make_intrusive<Made>(std::forward<Args>(args)...);
    Made* raw = made.get();
    return {raw, Owner(std::move(made))};
  }
}

}  // namespace flambeau
