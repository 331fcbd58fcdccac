"""The shared library: where it is, its functions with their types, and errors as exceptions."""
from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any, List

from . import _abi

SONAME = "liblace.so.1"


class LaceError(RuntimeError):
    """What the library said. `status` is its name, such as "E_CONTEXT"."""

    def __init__(self, status: int, text: str) -> None:
        name, sentence = _abi.STATUSES.get(status, ("E_UNKNOWN", "an unknown status"))
        super().__init__(text or sentence)
        self.status = name


def library_path() -> str:
    """$LACE_LIBRARY, else the file that came with this package, else the system's."""
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), SONAME)
    return os.environ.get("LACE_LIBRARY") or (beside if os.path.exists(beside) else SONAME)


def _load() -> ctypes.CDLL:
    path = library_path()
    try:
        library = ctypes.CDLL(os.path.abspath(path) if os.sep in path else path)
    except OSError as e:
        raise ImportError(f"lace: cannot load {path}: {e}. Install liblace1, or set LACE_LIBRARY to "
                          "the path of the library") from None
    for name, (result, arguments) in _abi.FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"lace: {path} has no {name}: it is older than this package, "
                              f"{_abi.VERSION}") from None
        function.restype = result
        function.argtypes = arguments
    return library


lib = _load()


def check(status: int, error: _abi.Error) -> None:
    """Raise what a function of the library returned, unless it is success."""
    if status != 0:
        raise LaceError(status, error.text.decode("utf-8", "replace"))


def call(function: Any, *arguments: Any) -> None:
    """Call a function whose last argument is the error. Other threads run meanwhile."""
    error = _abi.Error()
    check(function(*arguments, ctypes.byref(error)), error)


def make(function: Any, *arguments: Any) -> ctypes.c_void_p:
    """The same for a function that gives out a handle, before the error."""
    handle = ctypes.c_void_p()
    call(function, *arguments, ctypes.byref(handle))
    return handle


def tokens_array(tokens: Any) -> Any:
    """Ids as the library takes them."""
    return (ctypes.c_int32 * len(tokens))(*tokens)


@dataclass(frozen=True)
class Device:
    """Something that models run on; `id` is what Model(device=...) takes."""

    id: str
    name: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class FoundModel:
    """A model on this machine; `name` is what Model(...) takes."""

    name: str
    path: str
    origin: str
    n_bytes: int


def devices() -> List[Device]:
    """The devices of this machine; the CPU is the first."""
    n = lib.lace_device_list(None, 0)
    found = (_abi.Device * n)()
    n = min(n, lib.lace_device_list(found, n))
    return [Device(d.id.decode(), d.name.decode("utf-8", "replace"), d.total_bytes, d.free_bytes)
            for d in found[:n]]


def models() -> List[FoundModel]:
    """The models that `lace list` shows."""
    found: List[FoundModel] = []

    def add(_user: Any, entry: Any) -> bool:
        e = entry.contents
        found.append(FoundModel(os.fsdecode(e.name), os.fsdecode(e.path), e.origin.decode(),
                                e.n_bytes))
        return True

    lib.lace_model_list(_abi.FUNCTIONS["lace_model_list"][1][0](add), None)
    return found


def version() -> str:
    """The version of the library."""
    return lib.lace_version().decode()
