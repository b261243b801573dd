"""The reader of the pickles in torch checkpoints, which executes nothing and needs no torch.

A pickle is a program. This interpreter implements only the opcodes that a dictionary of tensors
needs. A tensor becomes a `View`, which describes the place of its data. A function that a file
names is never looked up or called. Objects that training frameworks save beside the tensors become
`Opaque`, which keeps only the name of their class. Objects of the classes that the caller requests
become a `Record` of their values. Functions of Python's standard library and of torch are refused
by name, except for a few known ones: no framework has a reason to save others.

`pickle.Unpickler` with `find_class` is not safe enough: nine bytes (``LONG_BINPUT`` with a large
index) make its memo allocate 4 GB, and ``BUILD`` sets attributes of any object that `find_class`
returns.
"""

from __future__ import annotations

import pickletools
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

from resumerge.errors import InputError, refuse
from resumerge.sources.formats.weight_format import damaged

STORAGES: dict[str, str | None] = {
    "DoubleStorage": "F64",
    "FloatStorage": "F32",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "LongStorage": "I64",
    "IntStorage": "I32",
    "ShortStorage": "I16",
    "CharStorage": "I8",
    "ByteStorage": "U8",
    "BoolStorage": "BOOL",
    "ComplexFloatStorage": "C64",
    "UntypedStorage": None,
}
"""safetensors' name of the element type, by torch's storage class; None for an untyped storage."""

DTYPES: dict[str, str] = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
    "complex64": "C64",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "bool": "BOOL",
}
"""safetensors' names of dtypes, by torch's names."""


@dataclass(frozen=True)
class TorchStorage:
    """A sequence of numbers in the file. Tensors are views of it.

    Args:
        key: the storage's name in the file.
        dtype: safetensors' name of the element type; None if each tensor states its own type.
        size: the number of elements, or of bytes if `dtype` is None.
    """

    key: str
    dtype: str | None
    size: int


@dataclass(frozen=True)
class View:
    """A tensor: elements of a storage from `offset` on, `strides` apart in each dimension.

    Offset, shape and strides are not validated: they have any value that the file states.
    """

    storage: TorchStorage
    dtype: str
    offset: Any
    shape: Any
    strides: Any


@dataclass(frozen=True)
class _Name:
    """The name of a function or class in the pickle."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(frozen=True)
class Opaque:
    """A placeholder for a class or an object, with the name of the class. No object is created."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(eq=False)
class Record:
    """The values of an object, and the name of its class. The object itself is never created.

    Args:
        name: the name of the class, without its module.
        state: the values in the pickle: the object's attributes, or the tuple of its arguments.
    """

    name: str
    state: Any = None


class _Unreadable(Exception):
    """The error for a pickle that requests an operation that is not allowed."""


_Mark = object()


class Unpickled(NamedTuple):
    """The content of a pickle.

    Args:
        value: dictionaries, lists, tuples, strings and numbers; a `View` for each tensor; a
            `Record` for each object of a requested class; an `Opaque` for any other object.
        storages: all storages in the pickle by key, including those that `value` does not use.
    """

    value: Any
    storages: dict[str, TorchStorage]


WEIGHTS = "torch checkpoint"
"""The kind of a file of weights, in messages."""


def read_pickle(
    stream: IO[bytes],
    where: str,
    records: Collection[tuple[str, str]] = (),
    what: str = WEIGHTS,
) -> Unpickled:
    """Read one pickle, and leave the stream at the end of the pickle.

    Args:
        stream: a stream whose next bytes are the pickle.
        where: the file's name in messages.
        records: the classes, by module and name, whose objects become a `Record`.
        what: the kind of file, for messages.

    Raises:
        InputError: the pickle is truncated or damaged, or has an opcode, name or call that no
            checkpoint needs.
    """
    try:
        machine = _Machine(frozenset(records))
        return Unpickled(machine.run(stream), machine.storages)
    except _Unreadable as error:
        raise _refused(what, where, str(error)) from None
    except (ValueError, IndexError, TypeError, KeyError, OverflowError, EOFError) as error:
        error_text = f"{type(error).__name__}: {error}"[:200]
        raise damaged(what, where, f"a pickle of {_CONTENT[what == WEIGHTS]}", error_text) from None


_CONTENT = ("the places of tensors", "a dictionary of tensors")


def _refused(what: str, where: str, found: str) -> InputError:
    is_weights = what == WEIGHTS
    reading_rule = ", as torch.load reads it with weights_only=True" if is_weights else " alone"
    return refuse(
        f"The {what} contains more than {'weights' if is_weights else _CONTENT[0]}, "
        "so it is not read",
        where=where,
        expected=f"{_CONTENT[is_weights]}{reading_rule}",
        found=found[:300],
        fix="do not use this file; if you trust its author, ask for a safetensors file",
    )


class _Machine:
    """The interpreter of pickles: a stack, and a memo of values that the pickle uses again."""

    def __init__(self, records: frozenset[tuple[str, str]]) -> None:
        self._records = records
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self.storages: dict[str, TorchStorage] = {}

    def run(self, stream: IO[bytes]) -> Any:
        for opcode, argument, _ in pickletools.genops(stream):
            if opcode.name == "STOP":
                return self._stack.pop()
            if opcode.name in _CONSTANTS:
                self._stack.append(_CONSTANTS[opcode.name]())
            elif opcode.name in _LITERALS:
                self._stack.append(argument)
            elif opcode.name not in _IGNORED:
                step = _STEPS.get(opcode.name)
                if step is None:
                    raise _Unreadable(f"the pickle opcode {opcode.name}")
                step(self, argument)
        raise EOFError("no STOP")

    def mark(self, _: Any) -> None:
        self._stack.append(_Mark)

    def _since_mark(self) -> list[Any]:
        for place in range(len(self._stack) - 1, -1, -1):
            if self._stack[place] is _Mark:
                items = self._stack[place + 1 :]
                del self._stack[place:]
                return items
        raise ValueError("no mark on the stack")

    def tuple_of(self, count: int) -> None:
        if count > len(self._stack):
            raise IndexError("an empty stack")
        items = tuple(self._stack[len(self._stack) - count :])
        del self._stack[len(self._stack) - count :]
        self._stack.append(items)

    def tuple_since_mark(self, _: Any) -> None:
        self._stack.append(tuple(self._since_mark()))

    def memoize(self, key: int | None) -> None:
        self._memo[len(self._memo) if key is None else key] = self._stack[-1]

    def recall(self, key: int) -> None:
        self._stack.append(self._memo[key])

    def append(self, _: Any) -> None:
        self._extend([self._stack.pop()])

    def appends(self, _: Any) -> None:
        self._extend(self._since_mark())

    def _extend(self, items: list[Any]) -> None:
        if isinstance(self._stack[-1], Opaque):
            return
        if not isinstance(self._stack[-1], list):
            raise TypeError("not a list")
        self._stack[-1].extend(items)

    def set_item(self, _: Any) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._update([key, value])

    def set_items(self, _: Any) -> None:
        self._update(self._since_mark())

    def _update(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, Opaque):
            return
        if not isinstance(target, dict) or len(items) % 2:
            raise TypeError("not a dictionary")
        for key, value in zip(items[::2], items[1::2]):
            if not isinstance(key, str | int | float | Opaque | Record | None):
                raise _Unreadable(f"a key of type {type(key).__name__}")
            target[key] = value

    def name(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._stack.append(self._known(_Name(module, name)))

    def name_of_stack(self, _: Any) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise TypeError("not a name")
        self._stack.append(self._known(_Name(module, name)))

    def _known(self, name: _Name) -> Any:
        return name if self._is_record(name) else _known(name)

    def _is_record(self, name: Any) -> bool:
        return isinstance(name, _Name) and (name.module, name.name) in self._records

    def call(self, _: Any) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        if isinstance(function, Opaque):
            self._stack.append(function)
            return
        if not isinstance(function, _Name) or not isinstance(arguments, tuple):
            raise TypeError("not a call")
        if self._is_record(function):
            self._stack.append(Record(function.name, arguments))
            return
        constructor = _CALLS.get((function.module, function.name))
        if constructor is None:
            raise _Unreadable(f"a call of {function}")
        self._stack.append(constructor(*arguments))

    def new_object(self, _: Any) -> None:
        """Drop the arguments of a new object, and put a `Record` or the `Opaque` in its place."""
        self._stack.pop()
        if self._is_record(self._stack[-1]):
            self._stack[-1] = Record(self._stack[-1].name)
        elif not isinstance(self._stack[-1], Opaque):
            raise _Unreadable("the pickle opcode NEWOBJ")

    def set_state(self, _: Any) -> None:
        """Store the attributes of a record; ignore those of other objects.

        A state dict has such attributes: the versions of its modules.
        """
        state = self._stack.pop()
        if isinstance(self._stack[-1], Record):
            self._stack[-1].state = state
        elif not isinstance(self._stack[-1], dict | Opaque):
            raise _Unreadable("attributes of something that is not a dictionary")

    def storage(self, _: Any) -> None:
        tag, kind, key, _location, size, *view_facts = self._stack.pop()
        if tag != "storage" or not isinstance(kind, _Name) or kind.name not in STORAGES:
            kind_name = kind if isinstance(kind, _Name) else f"a {type(kind).__name__}"
            raise _Unreadable(f"a reference to {kind_name}")
        if any(view_fact is not None for view_fact in view_facts):
            raise _Unreadable("a view of another storage")
        if type(size) is not int or not isinstance(key, str | int):
            raise TypeError("not a storage")
        storage = self.storages[str(key)] = TorchStorage(str(key), STORAGES[kind.name], size)
        self._stack.append(storage)


def _known(name: _Name) -> Any:
    """Return the value that stands for a name in a pickle.

    For a dtype, this is its safetensors name; for a storage class or a known function, its name;
    for any other class or function, an `Opaque`.

    Raises:
        _Unreadable: no checkpoint needs the name.
    """
    if name.module == "torch" and name.name in DTYPES:
        return DTYPES[name.name]
    is_storage = name.module in ("torch", "torch.storage", "torch.cuda") and name.name in STORAGES
    if is_storage or (name.module, name.name) in _CALLS:
        return name
    package = name.module.partition(".")[0]
    is_harmless = (name.module, name.name) in _HARMLESS
    if is_harmless or package not in _NEVER_SAVED:
        return Opaque(f"{name}"[:200])
    raise _Unreadable(f"{name}"[:200])


def _tensor(storage: TorchStorage, offset: Any, shape: Any, strides: Any, *_: Any) -> View:
    if not isinstance(storage, TorchStorage) or storage.dtype is None:
        raise TypeError("not a storage with a type")
    return View(storage, storage.dtype, offset, shape, strides)


def _tensor_of_dtype(
    storage: TorchStorage,
    offset: Any,
    shape: Any,
    strides: Any,
    _grad: Any,
    _hooks: Any,
    dtype: Any,
    *_: Any,
) -> View:
    if not isinstance(storage, TorchStorage) or dtype not in DTYPES.values():
        raise TypeError("not a storage with a dtype")
    return View(storage, dtype, offset, shape, strides)


def _parameter(data: View, *_: Any) -> View:
    if not isinstance(data, View):
        raise TypeError("not a tensor in a parameter")
    return data


def _ordered(*pairs: Any) -> dict[Any, Any]:
    if pairs:
        raise _Unreadable("an OrderedDict with arguments")
    return {}


_CALLS: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): _ordered,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor_of_dtype,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _parameter,
    ("torch", "Size"): lambda sizes: sizes,
    ("torch.serialization", "_get_layout"): lambda name: name,
    ("collections", "defaultdict"): lambda *_: {},
}
"""The functions that are called in place of those in a checkpoint, by module and name."""

_BUILTIN_VALUES = (
    *("bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list"),
    *("object", "range", "set", "slice", "str", "tuple"),
)

_HARMLESS = frozenset(
    {
        *((module, kind) for module in ("builtins", "__builtin__") for kind in _BUILTIN_VALUES),
        *(("pathlib", kind) for kind in ("PosixPath", "WindowsPath", "PurePosixPath")),
        *(("datetime", kind) for kind in ("date", "datetime", "time", "timedelta", "timezone")),
        *(("collections", kind) for kind in ("Counter", "deque")),
        ("argparse", "Namespace"),
        ("types", "SimpleNamespace"),
        ("_codecs", "encode"),
        ("torch", "device"),
    }
)
"""The names of Python and torch that trainers save: types of values, and numpy's scalar helpers."""

_NEVER_SAVED = sys.stdlib_module_names | {"torch", "__builtin__", "copy_reg", "commands"}
"""The packages whose other names are refused, because their functions could run a program."""

_IGNORED = frozenset({"PROTO", "FRAME"})
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
_LITERALS = frozenset(
    {
        *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
        *("BINUNICODE", "SHORT_BINUNICODE", "BINSTRING", "SHORT_BINSTRING"),
    }
)
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": _Machine.mark,
    "TUPLE": _Machine.tuple_since_mark,
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "MEMOIZE": _Machine.memoize,
    "BINPUT": _Machine.memoize,
    "LONG_BINPUT": _Machine.memoize,
    "BINGET": _Machine.recall,
    "LONG_BINGET": _Machine.recall,
    "APPEND": _Machine.append,
    "APPENDS": _Machine.appends,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": _Machine.name_of_stack,
    "REDUCE": _Machine.call,
    "NEWOBJ": _Machine.new_object,
    "BUILD": _Machine.set_state,
    "BINPERSID": _Machine.storage,
}
