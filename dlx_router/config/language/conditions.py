"""Conditions in CEL: text → a condition that costs some microseconds a letter, or why it is none and at which column.

Compiled and type-checked once, at load. Header names and JSON pointers must be written out, so that the journal knows
what a decision looked at. Linear time: regular expressions are RE2, and CEL has no loops but over lists it is given;
the library stops an evaluation at 10,000 iterations and an expression at 32 levels. It has no limit of cost, so what
could fill the memory or take seconds is refused at load (`_check_cost`), and each evaluation is timed. See
docs/architecture.md ("Conditions").
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final, NamedTuple

from dlx_router.config.findings import nearest
from dlx_router.config.language.regex import RegexError, compiled
from dlx_router.core.condition import Condition, ConditionFailed, View

MAX_CHARS: Final = 2000
TEXTS: Final = ("reason", "cause", "queue", "exchange", "routing_key", "vhost", "content_type")
NUMBERS: Final = ("attempts", "redrives", "age", "size")
MACROS: Final = frozenset({"all", "exists", "exists_one", "filter", "map"})
MAX_NESTED: Final = 2  # macros: the items of three lists are a million
MAX_MAPS: Final = 2  # each makes a list of its items, in which they may be many times as large
MAX_SUMS: Final = 4  # in macros
SLOW_NS: Final = 1_000_000
EXCESS_NS: Final = 10_000_000
TRIES: Final = 4
_ERRORS: Final = (RuntimeError, ValueError, TypeError, UnicodeError)
_STRING: Final = r"[rR]?(?:\"\"\".*?\"\"\"|'''.*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
_TOKENS: Final = re.compile(rf"(?P<gap>\s+|//[^\n]*)|(?P<text>{_STRING})|(?P<word>[A-Za-z_]\w*)|(?P<mark>.)", re.DOTALL)
_COMPILER_ERROR: Final = re.compile(r"ERROR: <input>:(\d+):(\d+): ([^\n]*)")


class ConditionError(ValueError):
    """The policy's author erred. `line` and `column` count from 1 within the expression."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def condition(text: str) -> Condition:
    """The condition, or ConditionError that says what is wrong and where."""
    if len(text) > MAX_CHARS:
        raise ConditionError(f"has {len(text)} characters, at most {MAX_CHARS} are possible; write several conditions")
    _check(text)
    tokens = [token for token in _tokens(text) if token.kind != "gap"]
    headers, pointers = _asked(text, tokens, "header"), _asked(text, tokens, "body")
    for pointer, at in pointers:
        if pointer and not pointer.startswith("/"):
            raise _error(text, at, f'"{pointer}" is no JSON pointer; write "/{pointer}"')
    _check_cost(text, tokens)
    for written, at in _literals(tokens, "matches", last=True):
        _check_regex(text, written, at)
    names, places = (tuple(dict.fromkeys(argument for argument, _ in asked)) for asked in (headers, pointers))
    return Condition(text, _compiled(text, tokens, names, places), names, places)


def _error(text: str, at: int, message: str) -> ConditionError:
    before = text[:at]
    return ConditionError(message, before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1)


class Evaluator:
    """Evaluates one expression, in which what it asks of the message are variables of these names.

    `slow_ms`: what an evaluation costs where that is more than 1 ms again and again, else 0.
    """

    __slots__ = ("_excess_ns", "_expression", "_headers", "_pointers", "slow_ms")

    def __init__(self, expression: Any, headers: Mapping[str, str], pointers: Mapping[str, str]) -> None:
        self._expression, self._headers, self._pointers = expression, headers, pointers
        self._excess_ns, self.slow_ms = 0, 0.0

    def __call__(self, view: View) -> bool:
        """Whether it holds. Raises ConditionFailed, and nothing else.

        The body is parsed only where the rest does not decide: what has a value without it has the same with it.
        """
        known = {**view.variables, **{variable: view.header(name) for variable, name in self._headers.items()}}
        began_ns = time.perf_counter_ns()
        try:
            if self._pointers:
                with suppress(*_ERRORS):
                    if isinstance(answer := self._expression.eval(data=known).value(), bool):
                        return answer
                asked_ns = time.perf_counter_ns()
                known |= {variable: view.body(pointer) for variable, pointer in self._pointers.items()}
                began_ns += time.perf_counter_ns() - asked_ns  # to parse the body is not the expression's cost
            return self._holds(known)
        finally:
            took_ns = time.perf_counter_ns() - began_ns
            if took_ns > SLOW_NS or self._excess_ns:
                self._charge(took_ns, known)

    def _holds(self, known: Mapping[str, Any]) -> bool:
        try:
            result = self._expression.eval(data=known)
            answer = result.value()
        except _ERRORS as error:
            raise ConditionFailed(_without_values(_plain(error))) from None
        if answer is True or answer is False:
            return answer
        failed = result.type() == _error_type()
        raise ConditionFailed(_without_values(_plain(answer)) if failed else "neither true nor false")

    def _charge(self, took_ns: int, known: Mapping[str, Any]) -> None:
        """Add up what is beyond 1 ms: the least of several evaluations, because a busy machine makes nothing slow.

        One message never suffices. CPU time is no help: where it is sampled, it may stand still for 10 ms.
        """
        for _ in range(TRIES if took_ns > SLOW_NS and not self.slow_ms else 0):
            began_ns = time.perf_counter_ns()
            with suppress(*_ERRORS):
                self._expression.eval(data=known).value()
            took_ns = min(took_ns, time.perf_counter_ns() - began_ns)
            if took_ns <= SLOW_NS or took_ns > EXCESS_NS:
                break
        self._excess_ns = max(0, self._excess_ns + min(took_ns - SLOW_NS, EXCESS_NS // 4))
        if self._excess_ns > EXCESS_NS and not self.slow_ms:
            self.slow_ms = took_ns / 1e6


def _check_cost(text: str, tokens: Sequence[_Token]) -> None:
    """Refuse what could take seconds, or memory without limit, for one message."""
    depth = maps = sums = 0
    open_at: list[int] = []  # the depth of each macro that is open
    for at, token in enumerate(tokens):
        why, depth = "", depth + {"(": 1, ")": -1}.get(token.text, 0)
        if token.text == ")" and open_at and open_at[-1] > depth:
            open_at.pop()
        elif token.text == "(" and at > 1 and tokens[at - 1].text in MACROS and tokens[at - 2].text == ".":
            open_at.append(depth)
            maps += tokens[at - 1].text == "map"
            why = f"at most {MAX_NESTED} of {_listed(MACROS)} in one another" if len(open_at) > MAX_NESTED else ""
            why = f"map() at most {MAX_MAPS} times: it could fill the memory" if maps > MAX_MAPS else why
        elif token.text == "+" and open_at:
            sums += 1
            why = (
                f"+ at most {MAX_SUMS} times in {_listed(MACROS)}: it could fill the memory" if sums > MAX_SUMS else ""
            )
        if why:
            raise _error(text, token.at, why)


def _listed(macros: Iterable[str]) -> str:
    return ", ".join(f"{macro}()" for macro in sorted(macros))


def _compiled(text: str, tokens: Sequence[_Token], headers: Iterable[str], pointers: Iterable[str]) -> Evaluator:
    """cel-expr-python 0.1.3 leaks 112 bytes with each call of a function of ours, so what they return are variables."""
    from cel_expr_python import cel  # noqa: PLC0415 - as in _environment

    prefix = "_v"
    while any(token.text.startswith(prefix) for token in tokens):
        prefix += "_"
    variables = {
        "header": {name: f"{prefix}h{number}" for number, name in enumerate(headers)},
        "body": {pointer: f"{prefix}b{number}" for number, pointer in enumerate(pointers)},
    }
    of_headers, of_pointers = ({variable: of for of, variable in names.items()} for names in variables.values())
    kinds = dict.fromkeys(of_headers, cel.Type.STRING) | dict.fromkeys(of_pointers, cel.Type.DYN)
    environment = cel.NewEnv(variables=_kinds() | kinds, functions=[])
    return Evaluator(environment.compile(_with_variables(text, tokens, variables)), of_headers, of_pointers)


def _with_variables(text: str, tokens: Sequence[_Token], variables: Mapping[str, Mapping[str, str]]) -> str:
    """The expression with a variable for each call, which ends with the second token behind its name."""
    parts, end = [], 0
    for at, token in enumerate(tokens[:-3]):
        if token.kind == "word" and token.text in variables and tokens[at + 1].text == "(":
            parts += [text[end : token.at], variables[token.text][_read(tokens[at + 2].text)]]
            end = tokens[at + 3].at + 1
    return "".join([*parts, text[end:]])


@cache
def _kinds() -> dict[str, Any]:
    from cel_expr_python import cel  # noqa: PLC0415 - as in _environment

    return dict.fromkeys(TEXTS, cel.Type.STRING) | dict.fromkeys(NUMBERS, cel.Type.INT)


@cache
def _environment() -> Any:
    """In which people write. Made when the first condition is read: 0.1 s and 14 MB that nobody else pays."""
    from cel_expr_python import cel  # noqa: PLC0415 - see above

    kind = cel.Type
    functions = [
        cel.FunctionDecl("header", [cel.Overload("header_string", kind.STRING, [kind.STRING])]),
        cel.FunctionDecl("body", [cel.Overload("body_string", kind.DYN, [kind.STRING])]),
    ]
    return cel.NewEnv(variables=_kinds(), functions=functions), (kind.BOOL, kind.DYN)


def _advice(text: str, message: str) -> str:
    """What now, for what people write first."""
    if "token recognition error at: '= '" in message:
        return "; compare with =="
    if (name := re.search(r"undeclared reference to '(\w+)'", message)) is None:
        return ""
    if re.search(rf"(header|body)\(\s*{name[1]}", text):
        return '; put the name in quotes: header("x-error"), body("/order")'
    return nearest(name[1], (*TEXTS, *NUMBERS)) or f"; known: {', '.join((*TEXTS, *NUMBERS))}"


def _check(text: str) -> None:
    environment, boolean = _environment()
    try:
        expression = environment.compile(text)
    except (RuntimeError, ValueError, UnicodeError) as error:
        match = _COMPILER_ERROR.search(str(error))
        if match is None:
            raise ConditionError(_plain(error)) from None
        raise ConditionError(f"{match[3]}{_advice(text, match[3])}", int(match[1]), int(match[2])) from None
    if not any(expression.return_type() == kind for kind in boolean):
        raise ConditionError(f"is {expression.return_type().name()}, neither true nor false; compare it with something")


@cache
def _error_type() -> Any:
    from cel_expr_python import cel  # noqa: PLC0415 - as in _environment

    return cel.Type.ERROR


def _without_values(message: str) -> str:
    """What is quoted may come from the message, and the log is no place for that."""
    return re.split(r"[:'\"(]", message)[0].strip()


def _plain(error: object) -> str:
    return re.sub(r"^[A-Z_]+: (ERROR: )?| \[[A-Z_]+\]$", "", str(error).split("\n")[0])


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKENS.finditer(text):
        assert match.lastgroup is not None
        yield _Token(match.lastgroup, match[0], match.start())


def _asked(text: str, tokens: Sequence[_Token], function: str) -> list[tuple[str, int]]:
    """What is given to each call of `header` or `body`; it must stand there."""
    asked = _literals(tokens, function)
    calls = [
        at for at, token in enumerate(tokens[:-1]) if token[:2] == ("word", function) and tokens[at + 1].text == "("
    ]
    if len(asked) < len(calls):
        known = {at for _, at in asked}
        missing = next(tokens[at] for at in calls if tokens[at + 2].at not in known)
        raise _error(
            text, missing.at, f'{function}() takes a text in quotes, {function}("…"), so that the journal knows it'
        )
    return [(_read(literal), at) for literal, at in asked]


def _literals(tokens: Sequence[_Token], function: str, *, last: bool = False) -> list[tuple[str, int]]:
    """The literal that is the only argument of each call (`last`: or the last one), and where it stands."""
    literals: list[tuple[str, int]] = []
    for at, token in enumerate(tokens):
        if token[:2] != ("word", function) or [following.text for following in tokens[at + 1 : at + 2]] != ["("]:
            continue
        argument = _last_argument(tokens, at + 2) if last else tokens[at + 2 : at + 4]
        if len(argument) == 2 and argument[0].kind == "text" and argument[1].text == ")":  # noqa: PLR2004 - the literal and the bracket behind it
            literals.append((argument[0].text, argument[0].at))
    return literals


def _last_argument(tokens: Sequence[_Token], start: int) -> Sequence[_Token]:
    """The last literal before the parenthesis that closes the call, and that parenthesis."""
    depth = 0
    for at in range(start, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[at].text, 0)
        if depth < 0:
            return tokens[at - 1 : at + 1]
    return ()


def _read(literal: str) -> str:
    """The text that a literal of CEL stands for."""
    return str(_environment()[0].compile(literal).eval(data={}).value())


def _check_regex(text: str, literal: str, at: int) -> None:
    try:
        compiled(_read(literal))
    except RegexError as error:
        raise _error(text, at, str(error)) from None
