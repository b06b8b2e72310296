"""The test program's end of the connection to a solution: questions and answers, and what each message means here.

Whatever the solution sends is taken for nothing but the answer to what was asked. What a call has changed in its
arguments is kept back and written at the end of the statement, so that a test's own reference value
(`assert f(xs) == sorted(xs)`) is made from the unchanged argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import wire
from ..exchange import Exchange
from ..writing import write_back
from .checks import Checks
from .ends import Stopped
from .lending import Lender
from .live import AT_ONCE, Live
from .meaning import resolved
from .messages import Messages
from .mirrored.handles import LINKS, MADE, Handle, HandleMeta, derived, doubt, is_nameable
from .mirrored.mirrors import Mirrors
from .mirrored.records import is_as_made
from .pace import PACE
from .raised import RaisedErrors
from .statements import ReturnedArguments, Statements


class Link(wire.Coder):
    """The connection to one solution."""

    def __init__(self, fd: int, namespace: dict[str, Any], shared: frozenset[str], trusted: bool) -> None:
        self.namespace, self.shared, self.trusted = namespace, shared, trusted
        self.messages = Messages(self)
        self.exchange = Exchange(fd, 2, self.messages.attend)
        self.state, PACE.exchange = self.exchange.state, self.exchange
        self.mirrors, self.lender, self.raiser = Mirrors(self), Lender(self), RaisedErrors(self)
        self.handles: dict[int, Any] = {}
        self.statements = Statements(self)
        self.awaited: dict[int, Any] = {}
        self.calls, self.asked, self.is_dead = 0, 0, False
        self.native, self.untrusted = False, False
        self.checks = Checks()
        self.live, self.returned = Live(self), ReturnedArguments(self)
        self.known = self.live.known
        LINKS[id(self)] = self

    def ask(self, *request: object) -> Any:
        """One question, and the answers to what the solution asks back meanwhile."""
        return self._ask(list(request), (), {})

    def names(self, wanted: list[str]) -> dict[str, Any]:
        """Those of these names that the solution defines. The answer has one place for each name and no names of its own."""
        if not wanted:
            return {}
        asked = self.asked
        found = self.ask("names", wanted)
        self.asked = asked
        # by position and not by name: a solution cannot bind what it was not asked for
        good = type(found) is list and len(found) == len(wanted)
        if not good or not all(f is None or (type(f) is list and len(f) == 1) for f in found):
            self.is_dead = True
            # a reply that no honest side gives: nothing it says from here on is believed
            raise Stopped
        values = {n: f[0] for n, f in zip(wanted, found, strict=True) if f is not None and is_nameable(f[0])}
        self.native = self.native or any(type(type(v)) is not HandleMeta for v in values.values())
        return values

    def call(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of the solution."""
        with self.state:
            self.calls += 1
            sent = [self.encode(a) for a in args]
            named = {k: self.encode(v) for k, v in kwargs.items()}
            request = ["call", number, sent, named, self.lender.world()]
        return self._ask(request, args, kwargs)

    def method(
        self, number: int, name: str, stub: object, target: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call a method; one that a subclass in the test has overridden is called as of the class that the stub is in."""
        self.calls += 1
        # in the classes and not by `getattr`, which would ask the object itself
        found = next((vars(c)[name] for c in type.mro(type(target)) if name in vars(c)), stub)
        by_class = found is not stub or name.startswith("__")
        with self.state:
            sent = [self.encode(a) for a in (target, *args)]
            named = {k: self.encode(v) for k, v in kwargs.items()}
            request = ["method", {"k": number}, name, sent, named, by_class, self.lender.world()]
        return self._ask(request, (target, *args), kwargs)

    def construct(self, cls: type[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make an object of a class. It is trusted to be what was asked for only as far as the test can tell."""
        before = set(self.handles)
        made = self.call(vars(cls)["_class_number"], args, kwargs)
        if not isinstance(made, Handle):
            return made
        about = self.mirrors.about.get(cls)
        is_bad = made._fields is not None and not is_as_made(self, about, made, cls, args, kwargs)
        # an object that was there before is not the new one that was asked for
        if is_bad or made._number in before:
            doubt(made)
            return made
        return derived(made, MADE)

    def derive(
        self, meta: type[Any], name: str, parents: tuple[type, ...], space: dict[str, Any], options: dict[str, Any]
    ) -> Any:
        """A class that the test derives from the solution's: made on both sides."""
        return self.mirrors.derive(meta, name, parents, space, options)

    def abilities(self, cls: type) -> frozenset[str]:
        """The special methods that a class of the solution has, with those of its bases."""
        return self.mirrors.abilities(cls)

    def set_field(self, handle: object, name: str, value: object) -> None:
        """The test has set a field of a dataclass object."""
        place = self.mirrors.field_place(type(handle), name)
        if place is not None and isinstance(handle, Handle) and handle._fields is not None:
            handle._fields[place] = value

    def _ask(self, request: list[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self.is_dead:
            raise Stopped
        with self.state, PACE.work():
            self.asked += 1
            self.statements.arguments.append((args, kwargs))
            try:
                reply = self.messages.reply(request)
                if reply[0] == "ok":
                    value = self.returned.value(reply, args, kwargs)
                    self._keep(reply[2:], args, kwargs)
                    return value
                self._keep(reply[2:], args, kwargs)
                err = self.raiser.exception(reply[1], request[0])
            except Exception as bad:  # no malformed answer may reach a test as an exception that it expects
                self.is_dead = True
                raise Stopped(f"bad answer: {type(bad).__name__}: {bad}"[:100]) from bad
            finally:
                self.statements.arguments.pop()
        raise err

    def _keep(self, changed: list[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        for place, value in changed[0] if changed else ():
            target = kwargs[place] if type(place) is str else args[place]
            if isinstance(target, Handle):
                self.statements.delay(target, [self.decode(v) for v in value["fv"]])
            elif type(target) in AT_ONCE:
                write_back(target, self.decode(value))
            else:
                self.statements.delay(target, self.decode(value))
        for place, number in changed[1] if len(changed) > 1 else ():
            self.live.adopt(number, kwargs[place] if type(place) is str else args[place])

    def encode(self, value: object) -> Any:
        """A value as the solution gets it."""
        with self.state:
            return wire.encode(value, self)

    def subclass(self, value: object, kind: type) -> Any:
        """Values of classes that stand for the solution's enumerations and named tuples."""
        number = self.mirrors.natives.get(kind)
        if number is None:
            return None
        if "_number" in getattr(value, "__dict__", ()):
            return {"k": vars(value)["_number"]}
        if isinstance(value, tuple):
            return {"nt": [number, [self.encode(v) for v in value]]}
        name = vars(value)["_name_"]
        return (
            {"en": [number, name]} if name in vars(kind)["_member_map_"] else {"fl": [number, vars(value)["_value_"]]}
        )

    def other(self, value: object) -> Any:
        """What is no plain value."""
        if isinstance(value, Handle):
            return {"k": value._number}
        if isinstance(value, type):
            own = vars(value).get("_class_number", self.mirrors.natives.get(value))
            if own is not None:
                return {"k": own}
        if type(value) in self.mirrors.natives:
            return self.subclass(value, type(value))
        return self.lender.lend(value)

    def decode(self, message: object) -> Any:
        """A value of the solution."""
        with self.state:
            return wire.decode(message, lambda tag, body: resolved(self, tag, body))
