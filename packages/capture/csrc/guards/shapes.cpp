// Expressions over integers: a small stack machine. Integers are exact; whatever overflows or has no value does not
// hold.
#include <cmath>
#include <optional>

#include "flambeau/errors.hpp"
#include "guards/node.hpp"

namespace flambeau {
namespace {

// The order is that of OPCODES in guards/shape_program.py.
enum class Op : int {
  kSymbol,
  kInt,
  kFloat,
  kAdd,
  kMul,
  kSub,
  kNegate,
  kFloorDiv,
  kMod,
  kTrueDiv,
  kPow,
  kMin,
  kMax,
  kAbs,
  kFloor,
  kCeil,
  kTrunc,
  kToFloat,
  kSqrt,
  kRound,
  kMath,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kAnd,
  kOr,
  kNot,
  kSelect,
  kLeftShift,
  kRightShift,
  kBitAnd,
  kBitOr,
  kBitXor,
};
constexpr int kOpCount = static_cast<int>(Op::kBitXor) + 1;

struct Number {
  bool real = false;
  int64_t i = 0;
  double f = 0;
  static Number integer(int64_t value) { return {false, value, 0}; }
  static Number floating(double value) { return {true, 0, value}; }
  double as_double() const { return real ? f : static_cast<double>(i); }
  long double exact() const { return real ? f : static_cast<long double>(i); }
  bool truth() const { return real ? f != 0 : i != 0; }
};
using Maybe = std::optional<Number>;

int64_t floor_div(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient - ((a % b != 0) && ((a < 0) != (b < 0)));
}

// Its rest has the divisor's sign. Not `a - floor_div(a, b) * b`: that product need not fit near the limits.
int64_t floor_mod(int64_t a, int64_t b) {
  const int64_t rest = a % b;
  return rest != 0 && ((rest < 0) != (b < 0)) ? rest + b : rest;
}

Maybe power(int64_t base, int64_t exponent) {
  if (exponent < 0)
    return base == 0 ? Maybe() : Number::floating(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  int64_t result = 1;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) return {};
    if (result == 0 || (base == 1)) break;
    if (base == -1) return Number::integer(exponent % 2 ? result : -result);
  }
  return Number::integer(result);
}

Maybe on_integers(Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  const bool no_divisor = b == 0 || (b == -1 && a == INT64_MIN);
  switch (op) {
    case Op::kAdd: return __builtin_add_overflow(a, b, &result) ? Maybe() : Number::integer(result);
    case Op::kSub: return __builtin_sub_overflow(a, b, &result) ? Maybe() : Number::integer(result);
    case Op::kMul: return __builtin_mul_overflow(a, b, &result) ? Maybe() : Number::integer(result);
    case Op::kFloorDiv: return no_divisor ? Maybe() : Number::integer(floor_div(a, b));
    case Op::kMod:
      if (b == -1) return Number::integer(0);  // the quotient of the lowest number does not fit, the rest does
      return no_divisor ? Maybe() : Number::integer(floor_mod(a, b));
    case Op::kPow: return power(a, b);
    case Op::kLeftShift:
      if (b < 0 || b > 62 || a < 0 || (a >> (62 - b)) != 0) return {};
      return Number::integer(a << b);
    case Op::kRightShift: return b < 0 ? Maybe() : Number::integer(a >> (b > 63 ? 63 : b));
    case Op::kBitAnd: return Number::integer(a & b);
    case Op::kBitOr: return Number::integer(a | b);
    case Op::kBitXor: return Number::integer(a ^ b);
    default: return {};
  }
}

struct Divided { double quotient, remainder; };

// Division as Python defines it for floats: the remainder has the divisor's sign, the quotient is a whole number.
Divided python_divmod(double a, double b) {
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) {
      remainder += b;
      quotient -= 1;
    }
  } else {
    remainder = std::copysign(0.0, b);
  }
  if (quotient == 0) return {std::copysign(0.0, a / b), remainder};
  const double whole = std::floor(quotient);
  return {quotient - whole > 0.5 ? whole + 1 : whole, remainder};
}

Maybe on_reals(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd: return Number::floating(a + b);
    case Op::kSub: return Number::floating(a - b);
    case Op::kMul: return Number::floating(a * b);
    case Op::kFloorDiv: return b == 0 ? Maybe() : Number::floating(python_divmod(a, b).quotient);
    case Op::kMod: return b == 0 ? Maybe() : Number::floating(python_divmod(a, b).remainder);
    case Op::kPow: {
      const double result = std::pow(a, b);
      const bool overflowed = std::isinf(result) && std::isfinite(a) && std::isfinite(b);
      return overflowed ? Maybe() : Number::floating(result);
    }
    default: return {};
  }
}

bool compare(Op op, const Number& a, const Number& b) {
  const bool real = a.real || b.real;
  // 64 bits of mantissa hold every int64 and every double, so mixed comparisons are exact as in Python.
  const long double x = a.exact(), y = b.exact();
  switch (op) {
    case Op::kEq: return real ? x == y : a.i == b.i;
    case Op::kNe: return real ? x != y : a.i != b.i;
    case Op::kLt: return real ? x < y : a.i < b.i;
    case Op::kLe: return real ? x <= y : a.i <= b.i;
    case Op::kGt: return real ? x > y : a.i > b.i;
    default: return real ? x >= y : a.i >= b.i;
  }
}

Maybe rounded(double value) {
  if (!(std::fabs(value) < 9.0e18)) return {};
  return Number::integer(static_cast<int64_t>(value));
}

Maybe unary(Op op, const Number& a) {
  switch (op) {
    case Op::kNegate:
      if (!a.real && a.i == INT64_MIN) return {};
      return a.real ? Number::floating(-a.f) : Number::integer(-a.i);
    case Op::kAbs:
      if (!a.real && a.i == INT64_MIN) return {};
      return a.real ? Number::floating(std::fabs(a.f)) : Number::integer(a.i < 0 ? -a.i : a.i);
    case Op::kFloor: return a.real ? rounded(std::floor(a.f)) : a;
    case Op::kCeil: return a.real ? rounded(std::ceil(a.f)) : a;
    case Op::kTrunc: return a.real ? rounded(std::trunc(a.f)) : a;
    case Op::kToFloat: return Number::floating(a.as_double());
    case Op::kSqrt: return a.as_double() < 0 ? Maybe() : Number::floating(std::sqrt(a.as_double()));
    case Op::kRound: return a.real ? rounded(std::nearbyint(a.f)) : a;  // halves to even, as Python rounds
    case Op::kNot: return Number::integer(!a.truth());
    default: return {};
  }
}

// The order is that of MATH in guards/shape_program.py.
using MathFunction = double (*)(double);
constexpr MathFunction kMathFunctions[] = {std::exp,  std::log,  std::log2, std::sin,  std::cos,  std::tan,  std::asin,
                                           std::acos, std::atan, std::sinh, std::cosh, std::tanh, std::asinh};

Maybe apply_math(int64_t index, const Number& a) {
  const double result = kMathFunctions[index](a.as_double());
  return std::isfinite(result) ? Number::floating(result) : Maybe();
}

Maybe binary(Op op, const Number& a, const Number& b) {
  if (op >= Op::kEq && op <= Op::kGe) return Number::integer(compare(op, a, b));
  if (op == Op::kAnd) return Number::integer(a.truth() && b.truth());
  if (op == Op::kOr) return Number::integer(a.truth() || b.truth());
  if (op == Op::kMin) return compare(Op::kLe, a, b) ? a : b;
  if (op == Op::kMax) return compare(Op::kGe, a, b) ? a : b;
  if (op == Op::kTrueDiv) {
    return b.as_double() == 0 ? Maybe() : Number::floating(a.as_double() / b.as_double());
  }
  if (a.real || b.real) return on_reals(op, a.as_double(), b.as_double());
  return on_integers(op, a.i, b.i);
}

struct Symbol {
  int slot;
  // kTensorSize, kTensorStride or kTensorOffset of the captured tensor; kNothing: the captured number itself
  Access what;
  int dim;
};

struct Step {
  Op op;
  int64_t integer;
  double real;
};

// Payload: (((slot, access or kNothing, dim), ...), ((opcode, argument), ...)).
class ShapeExpression final : public Relation {
 public:
  ShapeExpression(PyObject* payload, int spec) : Relation(spec) {
    PyObject *symbols = nullptr, *steps = nullptr;
    if (!PyArg_ParseTuple(payload, "O!O!", &PyTuple_Type, &symbols, &PyTuple_Type, &steps)) throw PythonError();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(symbols); ++i) {
      int slot = 0, what = 0, dim = 0;
      if (!PyArg_ParseTuple(PyTuple_GET_ITEM(symbols, i), "iii", &slot, &what, &dim)) throw PythonError();
      symbols_.push_back({slot, static_cast<Access>(what), dim});
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(steps); ++i) add_step(PyTuple_GET_ITEM(steps, i));
  }

  bool holds(PyObject* const* captured) const override {
    std::vector<Number> stack;
    stack.reserve(steps_.size());
    for (const Step& step : steps_) {
      if (!run(step, captured, stack)) return false;
    }
    return stack.size() == 1 && stack.back().truth();
  }

 private:
  void add_step(PyObject* step) {
    int op = 0;
    PyObject* argument = nullptr;
    if (!PyArg_ParseTuple(step, "iO", &op, &argument)) throw PythonError();
    if (op < 0 || op >= kOpCount) raise(PyExc_ValueError, "unknown opcode");
    Step made{static_cast<Op>(op), 0, 0};
    if (PyFloat_CheckExact(argument)) made.real = PyFloat_AS_DOUBLE(argument);
    if (PyLong_Check(argument)) made.integer = PyLong_AsLongLong(argument);
    if (PyErr_Occurred()) throw PythonError();
    if (made.op == Op::kSymbol && static_cast<size_t>(made.integer) >= symbols_.size()) {
      raise(PyExc_ValueError, "no such symbol");
    }
    if (made.op == Op::kMath && static_cast<size_t>(made.integer) >= std::size(kMathFunctions)) {
      raise(PyExc_ValueError, "no such function");
    }
    steps_.push_back(made);
  }

  bool run(const Step& step, PyObject* const* captured, std::vector<Number>& stack) const {
    Maybe result;
    if (step.op == Op::kSymbol) {
      result = load(symbols_[static_cast<size_t>(step.integer)], captured);
    } else if (step.op == Op::kInt) {
      result = Number::integer(step.integer);
    } else if (step.op == Op::kFloat) {
      result = Number::floating(step.real);
    } else if (step.op == Op::kSelect) {
      if (stack.size() < 3) return false;
      const Number other = pop(stack), value = pop(stack), condition = pop(stack);
      result = condition.truth() ? value : other;
    } else if (step.op == Op::kMath) {
      if (stack.empty()) return false;
      result = apply_math(step.integer, pop(stack));
    } else if (is_unary(step.op)) {
      if (stack.empty()) return false;
      result = unary(step.op, pop(stack));
    } else {
      if (stack.size() < 2) return false;
      const Number right = pop(stack), left = pop(stack);
      result = binary(step.op, left, right);
    }
    if (result) stack.push_back(*result);
    return result.has_value();
  }

  static bool is_unary(Op op) { return op == Op::kNegate || op == Op::kNot || (op >= Op::kAbs && op <= Op::kRound); }

  static Number pop(std::vector<Number>& stack) {
    const Number top = stack.back();
    stack.pop_back();
    return top;
  }

  static Maybe load(const Symbol& symbol, PyObject* const* captured) {
    PyObject* object = captured[symbol.slot];
    if (symbol.what != Access::kNothing) {
      int64_t number = 0;
      return tensor_extent(object, symbol.what, symbol.dim, &number) ? Maybe(Number::integer(number)) : Maybe();
    }
    if (PyLong_Check(object)) {
      int overflow = 0;
      const int64_t number = PyLong_AsLongLongAndOverflow(object, &overflow);
      return overflow ? Maybe() : Number::integer(number);
    }
    if (PyFloat_Check(object)) return Number::floating(PyFloat_AS_DOUBLE(object));
    return {};
  }

  std::vector<Symbol> symbols_;
  std::vector<Step> steps_;
};

}  // namespace

std::unique_ptr<Relation> make_shape_relation(PyObject* payload, int spec) {
  return std::make_unique<ShapeExpression>(payload, spec);
}

}  // namespace flambeau
