// Scalars of a program: an int, a float or a bool, with Python's arithmetic.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace flambeau {

enum class Kind : uint8_t { Int, Float, Bool };

struct Value {
  Kind kind = Kind::Int;
  union {
    int64_t i = 0;
    double d;
  };

  static Value of_int(int64_t value) {
    Value made;
    made.i = value;
    return made;
  }
  static Value of_float(double value) {
    Value made;
    made.kind = Kind::Float;
    made.d = value;
    return made;
  }
  static Value of_bool(bool value) {
    Value made;
    made.kind = Kind::Bool;
    made.i = value ? 1 : 0;
    return made;
  }

  bool is_float() const { return kind == Kind::Float; }
  double as_double() const { return is_float() ? d : static_cast<double>(i); }
  bool truth() const { return is_float() ? d != 0.0 : i != 0; }
  int64_t as_int() const { return is_float() ? static_cast<int64_t>(d) : i; }
  // What a kernel receives: `want` is 'i', 'f', or 0 to follow the value.
  int64_t bits(char want) const {
    if (want == 'f' || (want == 0 && is_float())) {
      const double value = as_double();
      int64_t result;
      std::memcpy(&result, &value, sizeof result);
      return result;
    }
    return as_int();
  }
};

// A literal, or the scalar register `reg` where that is not negative.
struct Operand {
  int32_t reg = -1;
  Value literal;
};

// Raised by scalar arithmetic, kernels and holds; becomes the Python exception of the same name.
struct ProgramError : std::runtime_error {
  enum class Type { Runtime, Index, ZeroDivision, Overflow, Value, TypeMismatch, Prediction };
  ProgramError(Type type, const std::string& message) : std::runtime_error(message), type(type) {}
  Type type;
};

enum class Opcode : uint8_t {
  Add,
  Sub,
  Mul,
  FloorDiv,
  Mod,
  TrueDiv,
  TruncDiv,
  Min,
  Max,
  Pow,
  Eq,
  Ne,
  Lt,
  Le,
  Gt,
  Ge,
  And,
  Or,
  Xor,
  BitAnd,
  BitOr,
  Shl,
  Shr,
  Neg,
  Not,
  Abs,
  Floor,
  Ceil,
  Trunc,
  Round,
  Sqrt,
  Exp,
  Log,
  ToInt,
  ToFloat,
  ToBool,
  Move,
  Select,
};

// The opcode of a name; throws std::invalid_argument for an unknown one.
Opcode opcode_of(const std::string& name);
Value compute(Opcode opcode, const Value* args);

}  // namespace flambeau
