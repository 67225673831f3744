#include "ranges.hpp"

namespace flambeau {
namespace {

// Facts are texts and whole numbers.
Range range_of(PyObject* described) {
  Range range;
  if (described == Py_None) return range;
  PyObject *name = nullptr, *facts = nullptr;
  if (!PyArg_ParseTuple(described, "UO!", &name, &PyDict_Type, &facts)) throw PythonError();
  range.name = text_of(name);
  PyObject *key = nullptr, *value = nullptr;
  for (Py_ssize_t place = 0; PyDict_Next(facts, &place, &key, &value);) {
    if (PyLong_Check(value)) {
      const long long number = PyLong_AsLongLong(value);
      if (number == -1 && PyErr_Occurred()) throw PythonError();
      range.facts.emplace(text_of(key), static_cast<int64_t>(number));
    } else {
      range.facts.emplace(text_of(key), text_of(value));
    }
  }
  return range;
}

}  // namespace

void name_ranges(const Program& program, PyObject* ranges) {
  if (program.ranges != nullptr) return;
  Ref described = checked(PyObject_CallFunction(ranges, "i", static_cast<int>(program.number)));
  PyObject *whole = nullptr, *instructions = nullptr;
  if (!PyArg_ParseTuple(described.get(), "OO!", &whole, &PyTuple_Type, &instructions)) throw PythonError();
  auto named = std::make_shared<Ranges>();
  named->whole = range_of(whole);
  for (size_t i = 0; i < program.code.size(); ++i) {
    const auto place = static_cast<Py_ssize_t>(i);
    const bool is_known = place < PyTuple_GET_SIZE(instructions);
    named->instructions.push_back(is_known ? range_of(PyTuple_GET_ITEM(instructions, place)) : Range());
  }
  for (const Subprogram& sub : program.subprograms) {
    for (const auto& nested : sub.programs) name_ranges(*nested, ranges);
  }
  // Python may have let another thread in, which runs with what it has named.
  if (program.ranges == nullptr) program.ranges = std::move(named);
}

}  // namespace flambeau
