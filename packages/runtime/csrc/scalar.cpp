#include "scalar.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace flambeau {
namespace {

using Error = ProgramError::Type;

[[noreturn]] void overflow() { throw ProgramError(Error::Overflow, "integer scalar out of range"); }
[[noreturn]] void zero_division() { throw ProgramError(Error::ZeroDivision, "division by zero"); }

int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) zero_division();
  if (a == INT64_MIN && b == -1) overflow();
  const int64_t quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

int64_t floor_mod(int64_t a, int64_t b) {
  if (b == 0) zero_division();
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return (rest != 0 && (rest < 0) != (b < 0)) ? rest + b : rest;
}

double float_mod(double a, double b) {
  if (b == 0.0) zero_division();
  double rest = std::fmod(a, b);
  if (rest != 0.0) {
    if ((b < 0) != (rest < 0)) rest += b;
  } else {
    rest = std::copysign(0.0, b);
  }
  return rest;
}

double float_floor_div(double a, double b) {
  const double rest = float_mod(a, b);
  const double quotient = (a - rest) / b;
  if (quotient == 0.0) return std::copysign(0.0, a / b);
  double floored = std::floor(quotient);
  if (quotient - floored > 0.5) floored += 1.0;
  return floored;
}

double trunc_div(double a, double b) {
  const double quotient = a / b;
  if (std::isnan(quotient)) throw ProgramError(Error::Value, "cannot convert float NaN to integer");
  if (std::isinf(quotient)) throw ProgramError(Error::Overflow, "cannot convert float infinity to integer");
  return std::trunc(quotient) + 0.0;  // an integer has no negative zero
}

Value int_pow(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) zero_division();
    return Value::of_float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow();
  }
  return Value::of_int(result);
}

double float_pow(double a, double b) {
  if (a == 0.0 && b < 0.0) zero_division();
  if (a < 0.0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
    throw ProgramError(Error::TypeMismatch, "a fractional power of a negative number is complex");
  }
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
    throw ProgramError(Error::Overflow, "result too large");
  return result;
}

Value to_int(double value) {
  if (std::isnan(value)) throw ProgramError(Error::Value, "cannot convert float NaN to integer");
  if (value >= 9223372036854775808.0 || value < -9223372036854775808.0) overflow();
  return Value::of_int(static_cast<int64_t>(value));
}

// long double holds every int64 and every double exactly, so mixed comparisons are exact as in Python.
long double exact(const Value& value) { return value.is_float() ? value.d : static_cast<long double>(value.i); }

Value shift(const Value& a, const Value& b, bool left) {
  if (a.is_float() || b.is_float()) throw ProgramError(Error::TypeMismatch, "shifts need ints");
  if (b.i < 0) throw ProgramError(Error::Value, "negative shift count");
  if (!left) return Value::of_int(a.i >> std::min<int64_t>(b.i, 63));
  int64_t result = a.i;
  for (int64_t step = 0; step < b.i && result != 0; ++step) {
    if (__builtin_mul_overflow(result, static_cast<int64_t>(2), &result)) overflow();
  }
  return Value::of_int(result);
}

Value bitwise(Opcode opcode, const Value& a, const Value& b) {
  if (a.is_float() || b.is_float()) throw ProgramError(Error::TypeMismatch, "bitwise operations need ints");
  const int64_t bits = opcode == Opcode::BitAnd ? (a.i & b.i) : opcode == Opcode::BitOr ? (a.i | b.i) : (a.i ^ b.i);
  return a.kind == Kind::Bool && b.kind == Kind::Bool ? Value::of_bool(bits != 0) : Value::of_int(bits);
}

Value float_arithmetic(Opcode opcode, double a, double b) {
  switch (opcode) {
    case Opcode::Add: return Value::of_float(a + b);
    case Opcode::Sub: return Value::of_float(a - b);
    case Opcode::Mul: return Value::of_float(a * b);
    case Opcode::FloorDiv: return Value::of_float(float_floor_div(a, b));
    case Opcode::Mod: return Value::of_float(float_mod(a, b));
    case Opcode::TruncDiv:
      if (b == 0.0) zero_division();
      return Value::of_float(trunc_div(a, b));
    default: return Value::of_float(float_pow(a, b));
  }
}

Value int_arithmetic(Opcode opcode, int64_t a, int64_t b) {
  int64_t result = 0;
  bool wrong = false;
  switch (opcode) {
    case Opcode::Add: wrong = __builtin_add_overflow(a, b, &result); break;
    case Opcode::Sub: wrong = __builtin_sub_overflow(a, b, &result); break;
    case Opcode::Mul: wrong = __builtin_mul_overflow(a, b, &result); break;
    case Opcode::FloorDiv: result = floor_div(a, b); break;
    case Opcode::Mod: result = floor_mod(a, b); break;
    case Opcode::TruncDiv:
      if (b == 0) zero_division();
      if (a == INT64_MIN && b == -1) overflow();
      result = a / b;
      break;
    default: return int_pow(a, b);
  }
  if (wrong) overflow();
  return Value::of_int(result);
}

Value true_div(const Value& a, const Value& b) {
  if (exact(b) == 0.0L) zero_division();
  if (a.is_float() || b.is_float()) return Value::of_float(a.as_double() / b.as_double());
  return Value::of_float(static_cast<double>(exact(a) / exact(b)));
}

Value unary(Opcode opcode, const Value& a) {
  switch (opcode) {
    case Opcode::Neg:
      if (a.is_float()) return Value::of_float(-a.d);
      if (a.i == INT64_MIN) overflow();
      return Value::of_int(-a.i);
    case Opcode::Abs:
      if (a.is_float()) return Value::of_float(std::fabs(a.d));
      if (a.i == INT64_MIN) overflow();
      return Value::of_int(a.i < 0 ? -a.i : a.i);
    case Opcode::Not: return Value::of_bool(!a.truth());
    case Opcode::Floor: return a.is_float() ? to_int(std::floor(a.d)) : Value::of_int(a.i);
    case Opcode::Ceil: return a.is_float() ? to_int(std::ceil(a.d)) : Value::of_int(a.i);
    case Opcode::Trunc:
    case Opcode::ToInt: return a.is_float() ? to_int(std::trunc(a.d)) : Value::of_int(a.i);
    case Opcode::Round: return a.is_float() ? to_int(std::nearbyint(a.d)) : Value::of_int(a.i);
    case Opcode::Sqrt:
      if (a.as_double() < 0) throw ProgramError(Error::Value, "math domain error");
      return Value::of_float(std::sqrt(a.as_double()));
    case Opcode::Exp: {
      const double result = std::exp(a.as_double());
      if (std::isinf(result) && std::isfinite(a.as_double())) throw ProgramError(Error::Overflow, "math range error");
      return Value::of_float(result);
    }
    case Opcode::Log:
      if (a.as_double() <= 0) throw ProgramError(Error::Value, "math domain error");
      return Value::of_float(std::log(a.as_double()));
    case Opcode::ToFloat: return Value::of_float(a.as_double());
    case Opcode::ToBool: return Value::of_bool(a.truth());
    default: return a;
  }
}

}  // namespace

Opcode opcode_of(const std::string& name) {
  static const std::unordered_map<std::string, Opcode> table = {
      // clang-format off
      {"add", Opcode::Add}, {"sub", Opcode::Sub}, {"mul", Opcode::Mul}, {"floordiv", Opcode::FloorDiv},
      {"mod", Opcode::Mod}, {"truediv", Opcode::TrueDiv}, {"truncdiv", Opcode::TruncDiv}, {"min", Opcode::Min},
      {"max", Opcode::Max}, {"pow", Opcode::Pow}, {"eq", Opcode::Eq}, {"ne", Opcode::Ne}, {"lt", Opcode::Lt},
      {"le", Opcode::Le}, {"gt", Opcode::Gt}, {"ge", Opcode::Ge}, {"and", Opcode::And}, {"or", Opcode::Or},
      {"xor", Opcode::Xor}, {"bitand", Opcode::BitAnd}, {"bitor", Opcode::BitOr}, {"shl", Opcode::Shl},
      {"shr", Opcode::Shr}, {"neg", Opcode::Neg}, {"not", Opcode::Not}, {"abs", Opcode::Abs}, {"floor", Opcode::Floor},
      {"ceil", Opcode::Ceil}, {"trunc", Opcode::Trunc}, {"round", Opcode::Round}, {"sqrt", Opcode::Sqrt},
      {"exp", Opcode::Exp}, {"log", Opcode::Log}, {"int", Opcode::ToInt}, {"float", Opcode::ToFloat},
      {"bool", Opcode::ToBool}, {"move", Opcode::Move}, {"select", Opcode::Select},
      // clang-format on
  };
  const auto found = table.find(name);
  if (found == table.end()) throw std::invalid_argument("unknown opcode " + name);
  return found->second;
}

Value compute(Opcode opcode, const Value* args) {
  switch (opcode) {
    case Opcode::Select: return args[0].truth() ? args[1] : args[2];
    case Opcode::Eq: return Value::of_bool(exact(args[0]) == exact(args[1]));
    case Opcode::Ne: return Value::of_bool(exact(args[0]) != exact(args[1]));
    case Opcode::Lt: return Value::of_bool(exact(args[0]) < exact(args[1]));
    case Opcode::Le: return Value::of_bool(exact(args[0]) <= exact(args[1]));
    case Opcode::Gt: return Value::of_bool(exact(args[0]) > exact(args[1]));
    case Opcode::Ge: return Value::of_bool(exact(args[0]) >= exact(args[1]));
    case Opcode::Min: return exact(args[1]) < exact(args[0]) ? args[1] : args[0];
    case Opcode::Max: return exact(args[1]) > exact(args[0]) ? args[1] : args[0];
    case Opcode::And: return Value::of_bool(args[0].truth() && args[1].truth());
    case Opcode::Or: return Value::of_bool(args[0].truth() || args[1].truth());
    case Opcode::TrueDiv: return true_div(args[0], args[1]);
    case Opcode::Shl: return shift(args[0], args[1], true);
    case Opcode::Shr: return shift(args[0], args[1], false);
    case Opcode::Xor:
    case Opcode::BitAnd:
    case Opcode::BitOr: return bitwise(opcode, args[0], args[1]);
    case Opcode::Add:
    case Opcode::Sub:
    case Opcode::Mul:
    case Opcode::FloorDiv:
    case Opcode::Mod:
    case Opcode::TruncDiv:
    case Opcode::Pow:
      if (args[0].is_float() || args[1].is_float()) {
        return float_arithmetic(opcode, args[0].as_double(), args[1].as_double());
      }
      return int_arithmetic(opcode, args[0].i, args[1].i);
    default: return unary(opcode, args[0]);
  }
}

}  // namespace flambeau
