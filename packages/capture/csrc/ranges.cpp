#include "ranges.hpp"

#include "region.hpp"

namespace flambeau {
namespace {

// A text of Python's, without what would end it in a trace; empty where it has no UTF-8.
std::string readable_text_of(PyObject* value) {
  const char* text = value != nullptr && PyUnicode_Check(value) ? PyUnicode_AsUTF8(value) : nullptr;
  if (text == nullptr) {
    PyErr_Clear();
    return {};
  }
  std::string plain(text);
  for (char& letter : plain) {
    if (letter == '"') letter = '\'';
    if (letter == '\\') letter = '/';
  }
  return plain;
}

}  // namespace

OpenRange::OpenRange(const char* name) : guard_(at::RecordScope::FUNCTION) {
  if (guard_.isActive()) guard_.before(name);
}

OpenRange::OpenRange(const Region* region, const CodeEntries& record, const Entry& entry)
    : guard_(at::RecordScope::FUNCTION) {
  if (!guard_.isActive()) return;
  const auto* code = reinterpret_cast<const PyCodeObject*>(record.code.get());
  std::string name = "Torch-Compiled Region: " + entry.number;
  const std::string label = readable_text_of(region->label);
  if (!label.empty()) name += " " + label;
  const std::unordered_map<std::string, c10::IValue> facts{
      {"function", readable_text_of(code->co_qualname)},
      {"file", readable_text_of(code->co_filename) + ":" + std::to_string(code->co_firstlineno)},
  };
  guard_.before(std::string_view(name), &facts);
}

}  // namespace flambeau
