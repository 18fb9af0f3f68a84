"""The command line of a command: its flags, its positional argument, its help, and the one runner that parses
it.

A flag is written --name=value or --name value; a switch --name or --name=false. A list may be repeated.
"--" ends the flags. - and _ are equal within a name, and --no-name is --name=false. --help prints all flags
in their groups, -h the first ones, both for the width of the terminal, and --help=json the command line as
JSON, from which `catchment completion` generates its script. A flag sets an attribute of an object of options
that has its name; the attribute's value is the default.
"""

import dataclasses
import math
import os
import re
import signal
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, TextIO, Tuple

from . import errors, text
from .errors import Failed, Refused, Unavailable, Usage
from .words import parts_of

_HELP_COLUMN = 28
_HELP_WIDTH = 80  # where there is no terminal
_FIRST_FLAGS = 10
_TRUE = ("true", "t", "yes", "y", "1")
_FALSE = ("false", "f", "no", "n", "0")


def whole(minimum: int) -> Callable[[str], int]:
    """Returns a function that parses a whole number."""

    def parse(given: str) -> int:
        n = text.parse_whole(given)
        if n is None or n < minimum:
            raise Usage("takes a whole number, at least %d" % minimum)
        return n

    return parse


def _number(what: str, accepts: Callable[[float], bool]) -> Callable[[str], float]:
    def parse(given: str) -> float:
        n = text.parse_number(given)
        if n is None or not math.isfinite(n) or not accepts(n):
            raise Usage("takes " + what)
        return n

    return parse


def boolean(given: str) -> bool:
    if given.lower() not in _TRUE + _FALSE:
        raise Usage("takes true or false")
    return given.lower() in _TRUE


# Parsers of flags by the placeholders of their values.
_PARSERS: Dict[str, Callable[[str], Any]] = {
    "": boolean,
    "N": whole(1),
    "NUMBER": _number("a number, at least 0", lambda n: n >= 0),
    "SECONDS": _number("a positive number of seconds", lambda n: n > 0),
}


class Flag(NamedTuple):
    target: Any  # has an attribute of the flag's name
    name: str
    value: str  # the placeholder of the value in the help; empty: a switch
    help: str
    parse: Callable[[str], Any]
    group: str = "Flags"  # its heading in the help

    def entry(self, width: int, words: str) -> str:
        """Returns its paragraph in the help: "  --out=DIR    Directory ..."."""
        head = ("  --%s%s  " % (self.name, self.value and "=" + self.value)).ljust(_HELP_COLUMN)
        if width < 2 * _HELP_COLUMN:
            return text.wrap_lines(head + words, width) + "\n"
        return text.hanging_paragraph(head, words, _HELP_COLUMN, width)

    def set(self, given: str) -> None:
        try:
            parsed = self.parse(given)
        except Refused as error:
            raise Usage("--%s=%s: %s" % (self.name, given, error.message)) from None
        if parsed is not None:
            setattr(self.target, self.name, parsed)


class Flags:
    def __init__(self) -> None:
        self.help = ""  # "short", "long" or "json" if -h, --help or --help=json was given
        self._group = "Flags"
        self.advice: Callable[[str, str], str] = lambda name, value: ""
        self._flags: Dict[str, Flag] = {}
        self._required: List[Flag] = []

    def declare(self, target: Any, words: str, /, **parsers: Callable[[str], Any]) -> None:
        """Declares the flags of a text of paragraphs: "--out=DIR  Directory for all output".

        A flag sets the attribute of its name to what its parser returns of the value; a parser that returns
        None has set something itself. Without one, N is a whole number from 1, NUMBER one from 0, SECONDS are
        positive, no placeholder is a switch, and others are texts. A flag may be repeated. Flags that follow
        a line "# Slurm" have this heading in the help.
        """
        for paragraph in re.split(r"^\s*(?:--(?=\w+(?:=\S+)?  )|(?=# ))", words, flags=re.MULTILINE)[1:]:
            if paragraph.startswith("# "):
                self._group = paragraph[2:].strip()
                continue
            head, _, help = " ".join(paragraph.split()).partition(" ")
            name, _, value = head.partition("=")
            parse = parsers.get(name, _PARSERS.get(value, str))
            self._flags[name] = Flag(target, name, value, help, parse, self._group)

    def require(self, name: str) -> None:
        """Refuses command lines that leave the attribute of a flag empty."""
        self._required.append(self._flags[name])

    def parse(self, args: Sequence[str]) -> List[str]:
        """Returns the positional arguments."""
        positional: List[str] = []
        rest = list(args)
        while rest:
            arg = rest.pop(0)
            if arg == "--":
                return positional + rest
            if len(arg) < 2 or arg[0] != "-":
                positional.append(arg)
                continue
            name, equals, value = arg.partition("=")
            name = (name[2:] if name.startswith("--") else name[1:]).replace("-", "_")
            if name in ("help", "h"):
                self.help = "json" if value == "json" else "short" if name == "h" else "long"
                continue
            flag = self._flags.get(name)
            negated = self._flags.get(name[3:]) if name.startswith("no_") and not equals else None
            if flag is None and negated and not negated.value:
                negated.set("false")
                continue
            if flag is None:
                follows = not equals and rest and not (len(rest[0]) > 1 and rest[0][0] == "-")
                raise self._unknown(name, rest[0] if follows else value)
            if not equals and flag.value and not rest:
                raise Usage("--%s needs a value: --%s=%s" % (name, name, flag.value))
            if not equals:
                value = rest.pop(0) if flag.value else "true"
            flag.set(value)
        return positional

    def check_required(self) -> None:
        for flag in self._required:
            if not getattr(flag.target, flag.name):
                raise Usage("--%s=%s is required" % (flag.name, flag.value))

    def advise(self, word: str) -> str:
        """Returns what `advice` says of NAME=VALUE; empty if `word` has another form."""
        name, equals, value = word.partition("=")
        # A file or a directory may have such a name.
        is_path = "/" in word or os.path.exists(word)
        return "" if not equals or not name or is_path else self.advice(name, value)

    def _unknown(self, name: str, value: str) -> Usage:
        nearest = text.nearest_name(name, list(self._flags))
        # A flag that begins alike is meant rather than anything else.
        near = nearest and (nearest.startswith(name) or name.startswith(nearest))
        advice = "" if near else self.advice(name, value)
        if advice:
            return Usage("unknown flag --%s: %s" % (name, advice))
        hint = "is it --%s?" % nearest if nearest else "--help lists them"
        return Usage("unknown flag --%s; %s" % (name, hint))

    def describe(self, width: int) -> str:
        """Returns a paragraph for each flag, below the headings of the groups."""
        groups: Dict[str, str] = {}
        for flag in self._flags.values():
            groups[flag.group] = groups.get(flag.group, "") + flag.entry(width, flag.help)
        return "".join("\n%s:\n%s" % group for group in groups.items())

    def describe_first(self, width: int) -> str:
        """Returns what the help of each of the first flags says first."""
        first, all = list(self._flags.values())[:_FIRST_FLAGS], len(self._flags)
        if not first:
            return ""
        heading = "Flags, %d of %d" % (len(first), all) if all > len(first) else "Flags"
        return "\n%s:\n%s" % (heading, "".join(flag.entry(width, _first_of(flag.help)) for flag in first))

    def to_json(self) -> Any:
        return [
            dict(name=f.name, value=f.value, bare="", help=f.help, group=f.group)
            for f in self._flags.values()
        ]


def _first_of(words: str) -> str:
    """Returns what the text says first, as a sentence."""
    first, *rest = re.split(r"[.;:] ", words, maxsplit=1)
    return first + "." if rest else words


class Argument(NamedTuple):
    """The positional argument."""

    name: str  # "JOB"
    example: str  # an example of a command line, without the program's name
    set: Callable[[Any], None]  # takes the word; a list of them if there may be several
    is_optional: Callable[[], bool] = lambda: False  # whether the flags make it unnecessary
    several: bool = False


@dataclasses.dataclass
class CommandLine:
    name: str  # "catchment compare"
    usage: str  # the help before the list of flags
    notes: str = ""  # the help after it
    flags: Flags = dataclasses.field(default_factory=Flags)
    argument: Optional[Argument] = None
    check: Callable[[], None] = lambda: None  # of the values of flags and argument

    def parse(self, args: Sequence[str]) -> None:
        """Sets what flags and argument set. Checks nothing but the flags if --help is given."""
        words = self.flags.parse(args)
        if self.flags.help:
            return
        for word in words:
            advice = self.flags.advise(word)
            if advice:
                raise Usage("%s: %s" % (word, advice))
        argument = self.argument
        if argument is None:
            if words:
                raise Usage("accepts only flags, but got '%s'; see --help" % words[0])
        elif len(words) > 1 and not argument.several:
            raise Usage("takes one %s, but got also %s" % (argument.name, words[1]))
        elif words:
            argument.set(words if argument.several else words[0])
        elif not argument.is_optional():
            number = "at least one" if argument.several else "one"
            raise Usage(
                "takes %s %s, for example: %s %s" % (number, argument.name, self.name, argument.example)
            )
        self.flags.check_required()
        self.check()

    def help(self, all: bool, width: int) -> str:
        """Returns the help for a terminal of this width: all of it, or what the command does, its usage and
        first flags."""
        if all:
            usage, notes = (text.fill_help(words, width) for words in (self.usage, self.notes))
            return usage + self.flags.describe(width) + notes
        usage, *rest = self.usage.split("\n\n")
        purpose = "\n\n" + _first_of(" ".join(rest[0].split())) if rest else ""
        example = self.argument and "\nExample:\n  %s %s\n" % (self.name, self.argument.example)
        return "%s%s%s\n%s\n" % (
            text.fill_help(usage + purpose, width),
            text.fill_help(example, width) if example else "",
            self.flags.describe_first(width),
            text.wrap_lines("All flags, examples and exit codes: %s --help" % self.name, width),
        )

    def to_json(self) -> Any:
        words = dict(name=self.name, usage=self.usage, notes=self.notes)
        return dict(words, argument=self.argument.name if self.argument else "", flags=self.flags.to_json())


class Stream:
    """The output of a command. Escapes what could change how a terminal shows the text, since file names,
    arguments and the texts of a job may have anything in them, and breaks lines to a terminal's width."""

    def __init__(self, target: TextIO) -> None:
        self._target, self._drawn = target, 0  # the columns of the line that draw() has drawn

    def write(self, words: str, colour: int = 0) -> None:
        """Writes whole lines, on a terminal in the colour (ECMA-48 SGR), unless NO_COLOR is set."""
        words, columns = text.escape_controls(words), self.terminal()[0]
        if columns:
            words = text.wrap_lines(words, columns)
        if colour and self.size()[0] and not os.environ.get("NO_COLOR"):
            words = re.sub("(?m)^.+$", lambda line: "\x1b[%dm%s\x1b[0m" % (colour, line.group()), words)
        self._put(words)

    def write_whole(self, words: str) -> None:
        """Writes lines that stay whole, for programs."""
        self._put(text.escape_controls(words))

    def draw(self, line: str, bar: str = "") -> None:
        """Redraws the last line, with `bar` before it in green; does nothing if there is no terminal. The
        terminal may have broken the line before, since it became narrower."""
        columns = self.size()[0]
        if not columns:
            return
        self.erase()
        green = bar and not os.environ.get("NO_COLOR")
        line = text.escape_controls(line)
        line = line if len(bar + line) <= columns else (line[: columns - len(bar) - 1] + "…")
        self._put("\r\x1b[K" + ("\x1b[32m%s\x1b[0m" % bar if green else bar) + line)
        self._drawn = len(bar + line)

    def erase(self) -> None:
        """Removes the line that draw() has drawn."""
        if self._drawn:
            above = (self._drawn - 1) // (self.size()[0] or self._drawn)
            self._put("\x1b[%dA\r\x1b[J" % above if above else "\r\x1b[K")
        self._drawn = 0

    def _put(self, sequence: str) -> None:
        try:
            self._target.write(sequence)
            self._target.flush()
        except BrokenPipeError:
            os._exit(errors.SIGNAL + signal.SIGPIPE)  # The reader has gone.

    def size(self) -> Tuple[int, int]:
        """Does what terminal() does, for a terminal that obeys sequences: not if TERM is unset or "dumb"."""
        return self.terminal() if os.environ.get("TERM", "") not in ("", "dumb") else (0, 0)

    def terminal(self) -> Tuple[int, int]:
        """Returns the columns and rows of the terminal behind it; (0, 0) if there is none."""
        try:
            columns, rows = os.get_terminal_size(self._target.fileno())
        except (OSError, ValueError):
            return 0, 0
        return columns or 80, rows or 24


class Streams(NamedTuple):
    out: Stream  # the result
    err: Stream  # errors


def standard_streams() -> Streams:
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    return Streams(Stream(sys.stdout), Stream(sys.stderr))


def run(line: CommandLine, args: Sequence[str], streams: Streams, command: Callable[[], int]) -> int:
    """Parses `args` and calls `command`, which returns the exit code. Returns that; 0 after printing the
    help, as text or JSON; and the exit code of an error after printing it, with the command's name in front.
    """
    wrong = errors.USAGE  # the exit code of what is refused
    try:
        line.parse(args)
        wrong = 0
        if line.flags.help:
            if line.flags.help == "json":
                streams.out.write_whole(text.to_json(line.to_json(), 2) + "\n")
            else:
                width = streams.out.terminal()[0] or _HELP_WIDTH
                streams.out.write(line.help(line.flags.help == "long", width))
            return 0
        return command()
    except Failed as error:
        streams.err.write("%s: %s\n" % (line.name, error.message))
        return error.exit_code if isinstance(error, Unavailable) else wrong or error.exit_code


@dataclasses.dataclass
class Security:
    """The files of mutual TLS, and whether connections may do without."""

    certs: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    insecure: bool = False

    def flags(self) -> List[str]:
        """Returns the flags that pass it on to another command of Catchment."""
        names = ("certs", "tls_ca", "tls_cert", "tls_key")
        given = ["--%s=%s" % (name, getattr(self, name)) for name in names if getattr(self, name)]
        return given + ["--insecure=%s" % ("true" if self.insecure else "false")]


def add_security_flags(security: Security, flags: Flags) -> None:
    """Declares --certs, --tls_ca, --tls_cert, --tls_key and --insecure, with the environment's defaults."""

    def set_certs(directory: str) -> str:
        security.tls_ca = security.tls_cert = security.tls_key = ""
        return directory

    for name in ("certs", "tls_ca", "tls_cert", "tls_key"):
        setattr(security, name, os.environ.get("CATCHMENT_" + name.upper(), ""))
    security.insecure = os.environ.get("CATCHMENT_INSECURE") == "1"
    flags.declare(security, parts_of("help/security.txt")["flags"], certs=set_certs)
