"""Runs a function as the program of a worker, in a process of its own (catchment.train).

python _function.py FILE
"""

import builtins
import contextlib
import dis
import importlib
import inspect
import marshal
import os
import pickle
import shlex
import stat
import sys
import types
from typing import Any, BinaryIO, Callable, Dict, Set

_TAKES_NOTHING = "%s() must take no arguments: it calls catchment.join() and reads its data itself"
_NEEDS = (
    "%s() uses %s, which it does not define, and which the worker's process lacks: install cloudpickle, "
    "which copies such values, or define them inside the function (modules may be imported outside)"
)
_NOT_COPIED = (
    "%r cannot be copied to the process of a worker (%s): install cloudpickle, or put the "
    "function into a file, and give its path"
)
_NOT_PRIVATE = (
    "%s must be a directory of this user that nobody else may enter (mode 0700), because workers execute "
    "what is in it: move it, or choose another `out`"
)
_NOT_EXECUTED = (
    "%s is not executed: it must be a file of this user (uid %d), and writable by nobody else, but it is "
    "%s; start the job again with catchment.train() or catchment.compare()"
)


def command(function: Callable[..., Any], path: str) -> str:
    """Writes a function to a file in a directory of its own, which is private;
    returns the command that runs it."""
    _check_signature(function)
    data = pickle.dumps([os.path.abspath(place) for place in sys.path]) + _pickled(function)
    directory, name = os.path.split(path)
    folder = _private_directory(directory)
    try:
        if name in os.listdir(folder):
            os.unlink(name, dir_fd=folder)
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
        with open(fd, "wb") as file:
            file.write(data)
    finally:
        os.close(folder)
    return " ".join(map(shlex.quote, [sys.executable, os.path.abspath(__file__), os.path.abspath(path)]))


def _private_directory(path: str) -> int:
    """Creates the directory if it does not exist; returns a descriptor of it."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (NotADirectoryError, PermissionError) as error:
        raise ValueError(_NOT_PRIVATE % path) from error
    about = os.fstat(folder)
    if about.st_uid != os.geteuid() or about.st_mode & 0o077:
        os.close(folder)
        raise ValueError(_NOT_PRIVATE % path)
    return folder


def _check_signature(function: Callable[..., Any]) -> None:
    try:
        inspect.signature(function).bind()
    except TypeError:
        raise TypeError(_TAKES_NOTHING % getattr(function, "__name__", "the function")) from None


def _pickled(function: Callable[..., Any]) -> bytes:
    try:
        import cloudpickle
    except ImportError:
        cloudpickle = None
    try:
        if cloudpickle is not None:
            return cloudpickle.dumps(function)
        if isinstance(function, types.FunctionType) and not _is_importable(function):
            return pickle.dumps(_Code(function))
        return pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(_NOT_COPIED % (function, error)) from error


def _is_importable(function: types.FunctionType) -> bool:
    module = sys.modules.get(function.__module__)
    return function.__module__ != "__main__" and getattr(module, function.__name__, None) is function


class _Code:
    """A function that needs nothing from outside except modules. The same interpreter runs it."""

    def __init__(self, function: types.FunctionType) -> None:
        code = function.__code__
        needed = {
            name: function.__globals__[name] for name in _global_names(code) if name in function.__globals__
        }
        self.modules = {name: value.__name__ for name, value in needed.items() if inspect.ismodule(value)}
        missing = sorted(set(needed) - set(self.modules)) + list(code.co_freevars)
        if missing:
            raise ValueError(_NEEDS % (function.__name__, ", ".join(missing)))
        self.code = marshal.dumps(code)
        self.defaults, self.keywords = function.__defaults__, function.__kwdefaults__

    def __call__(self) -> Any:
        names: Dict[str, Any] = {"__builtins__": builtins, "__name__": "__main__"}
        names.update((name, importlib.import_module(module)) for name, module in self.modules.items())
        function = types.FunctionType(marshal.loads(self.code), names, argdefs=self.defaults)
        function.__kwdefaults__ = self.keywords
        return function()


def _global_names(code: types.CodeType) -> Set[str]:
    names = {one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names


def _open(path: str) -> BinaryIO:
    """Opens a file to be executed. Exits if another user may have written it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        sys.exit("%s cannot be read: %s" % (path, error.strerror))
    about = os.fstat(fd)
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o022:
        sys.exit(
            _NOT_EXECUTED
            % (path, os.geteuid(), "%s of uid %d" % (stat.filemode(about.st_mode), about.st_uid))
        )
    return open(fd, "rb")


def _main() -> None:
    with _open(sys.argv[1]) as file:
        # The modules beside this file are not to be found under their own names, such as torch.
        sys.path[:] = pickle.load(file)
        function = pickle.load(file)
    function()


if __name__ == "__main__":
    _main()
