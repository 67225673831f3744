// Compiled entries of one region: for each code object a short list, most recently used first.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "flambeau/errors.hpp"
#include "frame_owner.hpp"
#include "guards/tree.hpp"
#include "thread_state.hpp"

namespace flambeau {

// What a frame returns, picked from the compiled graph's outputs.
struct OutputPlan {
  enum class Kind { kNone, kSingle, kTuple, kList } kind = Kind::kNone;
  std::vector<Py_ssize_t> indices;  // -1 stands for None
  bool is_whole = false;            // a tuple of all outputs in order
};

// One compiled result. Runs either rewritten code or, where `compiled` is set, a graph straight away.
struct Entry {
  int uses = 0;  // counted under the GIL
  bool once = false;  // dropped after the call that it was made for
  std::string number;  // `<frame>/<entry>`, as the handler gave it
  Owner owner = 0;
  Ref tree;
  Ref code;      // rewritten code whose parameters are all positional
  Ref function;  // a function over `code`, kept for frames with the same globals; it has a closure while it runs
  Ref compiled;
  bool boxed = false;
  std::vector<int> inputs;  // captured slots
  OutputPlan output;
  Ref keep;

  GuardTree* guards() const { return reinterpret_cast<GuardTree*>(tree.get()); }
};

class EntryPtr {
 public:
  EntryPtr() = default;
  explicit EntryPtr(Entry* entry) : entry_(entry) { ++entry_->uses; }
  EntryPtr(const EntryPtr& other) : entry_(other.entry_) {
    if (entry_) ++entry_->uses;
  }
  EntryPtr(EntryPtr&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}
  EntryPtr& operator=(EntryPtr other) noexcept {
    std::swap(entry_, other.entry_);
    return *this;
  }
  ~EntryPtr() {
    if (entry_ && --entry_->uses == 0) delete entry_;
  }
  Entry* operator->() const { return entry_; }
  Entry& operator*() const { return *entry_; }

 private:
  Entry* entry_ = nullptr;
};

struct CodeEntries {
  Ref code;  // keeps the key of the table alive
  bool is_part = false;  // what follows a break, or a round of a loop: a function of its own only for us
  std::vector<EntryPtr> entries;
  bool skip = false;
  bool skip_recursive = false;
  std::unordered_set<Owner> skipped;  // the owners for which the code is left alone
  std::vector<Owner> limit_told;  // the owners whose limit was reached
  std::unordered_map<Owner, Py_ssize_t> left_alone;  // calls in a row for which the handler had nothing, by owner
  bool compiling = false;
  bool has_once = false;  // whether an entry is to be dropped after the call that it was made for
};

using CodeTable = std::unordered_map<PyCodeObject*, std::unique_ptr<CodeEntries>>;

// Read what the handler answered: ("code", tree, code, keep, number) or ("graph", tree, compiled, boxed, slots,
// outputs, keep, number).
EntryPtr parse_entry(PyObject* answer);

// Try the entries in order. On a hit run it with the frame's values and set `hit`; the result is a new reference or
// NULL with an exception. Without a hit the result is NULL and no exception is set.
PyObject* run_first_match(Region* region, CodeEntries& record, PyFunctionObject* function, const FrameView& view,
                          bool& hit);

// Run an entry that fits, which comes to the front of its record; `profiled`: as a range of torch's profiler.
PyObject* run_entry(Region* region, CodeEntries& record, size_t place, const EntryPtr& entry, PyObject* const* values,
                    PyFunctionObject* function, const FrameView& view, bool profiled);

// Forget entries whose guards can never hold again.
void drop_dead(CodeEntries& record);

// Forget the entries that were made for one call.
void drop_once(CodeEntries& record);

}  // namespace flambeau
