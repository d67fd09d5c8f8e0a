"""Count the arithmetic and the memory that functions of the package use, by running their source with counters.

`counted(function)` returns a copy of a function in which every operation on floats, every use of `math`, and every
element of an array that is read or written is counted in COUNTS; the functions that it calls are copied in the same
way. The copy runs in the Python interpreter on the same arrays, so a compiled loop can be continued with it.
"""

import ast
import inspect
import math
import textwrap
import types
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from idleband.kernels.compile import LazyFunction

COUNTS: Counter[str] = Counter()
READ: set[int] = set()  # addresses of elements
READ_FIRST: set[int] = set()  # of those that were read before they were written
WRITTEN: set[int] = set()

OPERATIONS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("add", "+"), ast.Sub: ("add", "-"), ast.Mult: ("multiply", "*"), ast.Div: ("divide", "/"),
    ast.Pow: ("power", "**"), ast.Mod: ("other", "%"), ast.FloorDiv: ("other", "//"), ast.BitXor: ("bits", "^"),
    ast.BitAnd: ("bits", "&"), ast.BitOr: ("bits", "|"), ast.LShift: ("bits", "<<"), ast.RShift: ("bits", ">>"),
}  # fmt: skip
FLOATS = (float, np.floating)


def new_slot() -> None:
    """Forget all addresses."""
    READ.clear()
    READ_FIRST.clear()
    WRITTEN.clear()


def reset() -> None:
    """Forget all counts."""
    COUNTS.clear()
    new_slot()


# --- what the copies call --------------------------------------------------------------------------------------------


def operate(kind: str, apply: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    if isinstance(a, FLOATS) or isinstance(b, FLOATS) or kind == "divide":
        COUNTS[kind] += 1
    elif kind == "multiply" and isinstance(a, np.uint64):
        COUNTS["mix"] += 1  # SplitMix64 multiplies twice per random number
    return apply(a, b)


def compare(a: Any, b: Any) -> None:
    if isinstance(a, FLOATS) or isinstance(b, FLOATS):
        COUNTS["compare"] += 1


_origins: dict[int, tuple[np.ndarray, int, tuple[int, ...]]] = {}


def address(array: np.ndarray, index: Any) -> int:
    known = _origins.get(id(array))
    if known is None:  # the array is kept, so that its number is not used again
        known = _origins[id(array)] = (array, array.__array_interface__["data"][0], array.strides)
    _, start, strides = known
    if not isinstance(index, tuple):
        return start + int(index) * strides[0]
    return start + sum(int(i) * stride for i, stride in zip(index, strides, strict=False))


def touch(array: Any, index: Any, addresses: set[int], kind: str) -> None:
    if isinstance(array, np.ndarray):
        if isinstance(index, slice) or (isinstance(index, tuple) and any(isinstance(i, slice) for i in index)):
            return  # a view: what is used of it is counted then
        if (isinstance(index, tuple) and len(index) < array.ndim) or (not isinstance(index, tuple) and array.ndim > 1):
            return
        COUNTS[kind] += array.itemsize
        place = address(array, index)
        addresses.add(place)
        if addresses is READ and place not in WRITTEN:
            READ_FIRST.add(place)


def read(array: Any, index: Any) -> Any:
    touch(array, index, READ, "bytes read")
    return array[index]


def write(array: Any, index: Any, value: Any) -> None:
    touch(array, index, WRITTEN, "bytes written")
    array[index] = value


def call_math(name: str, *arguments: Any) -> Any:
    if name not in ("isnan", "isinf", "isfinite", "floor", "ceil"):
        COUNTS[name] += 1
    return getattr(math, name)(*arguments)


def choose(function: Callable[..., Any], *arguments: Any) -> Any:
    """max or min."""
    if any(isinstance(a, FLOATS) for a in arguments):
        COUNTS["compare"] += len(arguments) - 1
    return function(*arguments)


HELPERS = {
    f"counting_{function.__name__}": function for function in (operate, compare, read, write, call_math, choose)
} | {
    f"counting_{kind.__name__}": eval(f"lambda a, b: a {symbol} b") for kind, (_, symbol) in OPERATIONS.items()
}  # fmt: skip

# --- copies ----------------------------------------------------------------------------------------------------------


def helper(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(f"counting_{name}", ast.Load()), list(arguments), [])


class Counting(ast.NodeTransformer):
    """Rewrites operations into calls of the functions above."""

    def __init__(self) -> None:
        self.names = 0

    def operation(self, op: ast.operator, a: ast.expr, b: ast.expr) -> ast.Call:
        kind, _ = OPERATIONS[type(op)]
        apply = ast.Name(f"counting_{type(op).__name__}", ast.Load())
        return helper("operate", ast.Constant(kind), apply, a, b)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return self.operation(node.op, node.left, node.right)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        return helper("read", node.value, self.index(node.slice)) if isinstance(node.ctx, ast.Load) else node

    def index(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Slice):
            parts = [part or ast.Constant(None) for part in (node.lower, node.upper, node.step)]
            return ast.Call(ast.Name("slice", ast.Load()), parts, [])
        if isinstance(node, ast.Tuple):
            return ast.Tuple([self.index(part) for part in node.elts], ast.Load())
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) > 1 or isinstance(node.ops[0], ast.Is | ast.IsNot | ast.In | ast.NotIn):
            return node
        self.names += 1
        a, b = f"counting_a{self.names}", f"counting_b{self.names}"
        values = [ast.NamedExpr(ast.Name(n, ast.Store()), v) for n, v in ((a, node.left), (b, node.comparators[0]))]
        counted = helper("compare", *values)
        loads = [ast.Name(n, ast.Load()) for n in (a, b)]
        return ast.Subscript(
            ast.Tuple([counted, ast.Compare(loads[0], node.ops, [loads[1]])], ast.Load()), ast.Constant(1), ast.Load()
        )

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node.func:
            case ast.Attribute(ast.Name("math"), name):
                return helper("call_math", ast.Constant(name), *node.args)
            case ast.Name("max" | "min" as name):
                return helper("choose", ast.Name(name, ast.Load()), *node.args)
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        targets = node.targets
        if len(targets) == 1 and isinstance(targets[0], ast.Subscript):
            return ast.Expr(helper("write", targets[0].value, self.index(targets[0].slice), node.value))
        if any(isinstance(part, ast.Subscript) for t in targets if isinstance(t, ast.Tuple) for part in t.elts):
            names, stores = [], []
            for part in targets[0].elts:  # type: ignore[attr-defined]
                if isinstance(part, ast.Subscript):
                    self.names += 1
                    name = f"counting_t{self.names}"
                    names.append(ast.Name(name, ast.Store()))
                    stores.append(
                        ast.Expr(helper("write", part.value, self.index(part.slice), ast.Name(name, ast.Load())))
                    )
                else:
                    names.append(part)
            return [ast.Assign([ast.Tuple(names, ast.Store())], node.value), *stores]
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        target = node.target
        value = self.visit(node.value)
        if isinstance(target, ast.Subscript):
            self.names += 1
            array, index = f"counting_x{self.names}", f"counting_i{self.names}"
            place = self.index(self.visit(target.slice))
            loads = [ast.Name(n, ast.Load()) for n in (array, index)]
            return [
                ast.Assign([ast.Name(array, ast.Store())], self.visit(target.value)),
                ast.Assign([ast.Name(index, ast.Store())], place),
                ast.Expr(helper("write", *loads, self.operation(node.op, helper("read", *loads), value))),
            ]
        assert isinstance(target, ast.Name)
        return ast.Assign([target], self.operation(node.op, ast.Name(target.id, ast.Load()), value))


class CountedModule:
    """A module of the package whose functions are copies."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module

    def __getattr__(self, name: str) -> Any:
        value = replaced(getattr(self.module, name), {})
        setattr(self, name, value)
        return value


_copies: dict[Any, Any] = {}


def replaced(value: Any, bindings: dict[str, Any]) -> Any:
    """Return what stands for a global of a copied function."""
    function = value.py_func if isinstance(value, LazyFunction) else value
    if isinstance(function, types.FunctionType) and function.__module__.startswith("idleband"):
        return counted(function, bindings)
    if isinstance(value, types.ModuleType) and value.__name__.startswith("idleband"):
        return CountedModule(value)
    return value


def counted(function: Any, bindings: dict[str, Any] | None = None) -> Any:
    """Return a counting copy of a function; `bindings` are globals of it that have other values."""
    function = function.py_func if isinstance(function, LazyFunction) else function
    key = function, *sorted((name, id(value)) for name, value in (bindings or {}).items())
    if key in _copies:
        return _copies[key]
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    definition.returns = None
    for argument in definition.args.args:
        argument.annotation = None
    tree = ast.fix_missing_locations(Counting().visit(tree))
    namespace: dict[str, Any] = {}
    known = function.__globals__ | HELPERS | (bindings or {})
    exec(compile(tree, f"<counting {function.__qualname__}>", "exec"), known, namespace)
    code = namespace[definition.name].__code__
    space = dict(known)
    copy = types.FunctionType(code, space, function.__name__, function.__defaults__)
    _copies[key] = copy
    for name in names_of(code):
        if name in known and name not in HELPERS:
            space[name] = replaced(known[name], {})
    return copy


def names_of(code: types.CodeType) -> set[str]:
    """Return the names that a function and the functions in it use."""
    inner = (names_of(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*inner)
