#include "flow.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "joint.hpp"

namespace flambeau {

namespace {

// Dinic's algorithm over arrays: arc i and arc i ^ 1 are each other's residual.
class Network {
 public:
  explicit Network(size_t count) : first_(count, -1), level_(count), next_(count) {}

  void add(int64_t tail, int64_t head, int64_t capacity) {
    link(tail, head, capacity);
    link(head, tail, 0);
  }

  void saturate(int64_t source, int64_t sink) {
    while (measure(source, sink)) {
      next_ = first_;
      while (augment(source, sink)) {
      }
    }
  }

  // Vertices from which the sink can still be reached.
  std::vector<char> reaching(int64_t sink) const {
    std::vector<char> reached(first_.size(), 0);
    std::vector<int64_t> queue{sink};
    reached[sink] = 1;
    while (!queue.empty()) {
      int64_t vertex = queue.back();
      queue.pop_back();
      for (int64_t arc = first_[vertex]; arc >= 0; arc = chain_[arc]) {
        int64_t from = head_[arc];
        if (!reached[from] && room_[arc ^ 1] > 0) {
          reached[from] = 1;
          queue.push_back(from);
        }
      }
    }
    return reached;
  }

 private:
  void link(int64_t tail, int64_t head, int64_t capacity) {
    head_.push_back(head);
    room_.push_back(capacity);
    chain_.push_back(first_[tail]);
    first_[tail] = static_cast<int64_t>(head_.size()) - 1;
  }

  bool measure(int64_t source, int64_t sink) {
    std::fill(level_.begin(), level_.end(), -1);
    std::vector<int64_t> queue{source};
    level_[source] = 0;
    for (size_t i = 0; i < queue.size(); ++i) {
      for (int64_t arc = first_[queue[i]]; arc >= 0; arc = chain_[arc]) {
        if (room_[arc] > 0 && level_[head_[arc]] < 0) {
          level_[head_[arc]] = level_[queue[i]] + 1;
          queue.push_back(head_[arc]);
        }
      }
    }
    return level_[sink] >= 0;
  }

  // One path in the level graph, found with an explicit stack: graphs are thousands of vertices deep.
  bool augment(int64_t source, int64_t sink) {
    std::vector<int64_t> path;
    int64_t vertex = source;
    while (vertex != sink) {
      int64_t& arc = next_[vertex];
      while (arc >= 0 && (room_[arc] <= 0 || level_[head_[arc]] != level_[vertex] + 1)) arc = chain_[arc];
      if (arc >= 0) {
        path.push_back(arc);
        vertex = head_[arc];
        continue;
      }
      if (path.empty()) return false;
      level_[vertex] = -1;
      vertex = head_[path.back() ^ 1];
      path.pop_back();
    }
    int64_t amount = std::numeric_limits<int64_t>::max();
    for (int64_t arc : path) amount = std::min(amount, room_[arc]);
    for (int64_t arc : path) {
      room_[arc] -= amount;
      room_[arc ^ 1] += amount;
    }
    return true;
  }

  std::vector<int64_t> first_, level_, next_, head_, room_, chain_;
};

}  // namespace

PyObject* min_cut_side(PyObject*, PyObject* args) {
  return boundary(
      [&]() -> PyObject* {
        long long count, source, sink;
        PyObject *tails, *heads, *capacities;
        if (!PyArg_ParseTuple(args, "LOOOLL", &count, &tails, &heads, &capacities, &source, &sink)) throw PythonError();
        const auto from = integers(tails), to = integers(heads), room = integers(capacities);
        if (from.size() != to.size() || from.size() != room.size()) raise(PyExc_ValueError, "unequal arc lists");
        Network network(static_cast<size_t>(count));
        for (size_t i = 0; i < from.size(); ++i) {
          if (from[i] < 0 || from[i] >= count || to[i] < 0 || to[i] >= count || room[i] < 0) {
            raise(PyExc_ValueError, "an arc is out of range");
          }
          network.add(from[i], to[i], room[i]);
        }
        network.saturate(source, sink);
        std::vector<char> side = network.reaching(sink);
        for (char& flag : side) flag = flag ? 0 : 1;
        return PyBytes_FromStringAndSize(side.data(), static_cast<Py_ssize_t>(side.size()));
      },
      nullptr);
}

}  // namespace flambeau
