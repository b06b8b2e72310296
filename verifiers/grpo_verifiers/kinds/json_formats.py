"""Formats and patterns of JSON Schema: `format` as defined by the RFCs that the drafts cite, `pattern` as defined by
ECMA 262.

How this works: `FORMATS` has a test for each format of the drafts but those for which the package jsonschema has its own (`idn-hostname`,
`color`). `python_pattern` rewrites a pattern of ECMA 262 for `re`: `$` ends the text only, `\\d`, `\\w` and `\\b` are ASCII, `\\s` is
wider, `\\p{...}` becomes the ranges of its general category.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from datetime import date
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address

_HEX = "%[0-9A-Fa-f]{2}"
_OPEN = r"A-Za-z0-9\-._~!$&'()*+,;="
_WIDE = "\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef\U00010000-\U000efffd"


def _address(wide: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns of an absolute address and of a relative one (RFC 3986, 3987); group 1 is the address between brackets."""
    one, private = (
        rf"(?:[{_OPEN}{wide}:@]|{_HEX})",
        "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd" if wide else "",
    )
    host = rf"(?:\[([0-9A-Fa-f:.]+|[vV][0-9A-Fa-f]+\.[{_OPEN}:]+)\]|(?:[{_OPEN}{wide}]|{_HEX})*+)"
    authority = rf"//(?:(?:[{_OPEN}{wide}:]|{_HEX})*+@)?{host}(?::[0-9]*+)?(?:/{one}*+)*+"
    rest = rf"(?:\?(?:[{_OPEN}{wide}{private}:@/?]|{_HEX})*+)?(?:#(?:[{_OPEN}{wide}:@/?]|{_HEX})*+)?"
    rooted = rf"/(?:{one}++(?:/{one}*+)*+)?"
    first = rf"(?:[{_OPEN}{wide}@]|{_HEX})++"  # of a relative path: no colon
    return (
        re.compile(rf"\A[A-Za-z][A-Za-z0-9+.-]*+:(?:{authority}|{rooted}|{one}++(?:/{one}*+)*+|){rest}"),
        re.compile(rf"\A(?:{authority}|{rooted}|{first}(?:/{one}*+)*+|){rest}"),
    )


_ADDRESSES = {"uri": _address(""), "iri": _address(_WIDE)}
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]+)?(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))")
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LOCAL = re.compile(rf'{_ATOM}(?:\.{_ATOM})*|"(?:[^"\\\x00-\x1f\x7f-\U0010ffff]|\\[\x20-\x7e])*"')
_WIDE_LOCAL = re.compile(r"\"[^\"\\\x00-\x1f\x7f]*\"|[^\s@\"(),:;<>\[\\\].]+(?:\.[^\s@\"(),:;<>\[\\\].]+)*")
_VARIABLE = rf"(?:[A-Za-z0-9_]|{_HEX})+(?:\.(?:[A-Za-z0-9_]|{_HEX})+)*(?::[1-9][0-9]{{0,3}}|\*)?"
_POINTER = r"(?:/(?:[^~/]|~[01])*)*"


def _is_address(text: str, kind: str, may_be_relative: bool = False) -> bool:
    absolute, relative = _ADDRESSES[kind]
    found = absolute.fullmatch(text) or (relative.fullmatch(text) if may_be_relative else None)
    return found is not None and all(
        group is None or group[0] in "vV" or _is_ip(IPv6Address, group) for group in found.groups()
    )


def _is_ip(kind: type[IPv4Address] | type[IPv6Address], text: str) -> bool:
    try:
        return text.isascii() and "%" not in text and bool(kind(text))
    except (AddressValueError, ValueError):
        return False


def _is_date(text: str) -> bool:
    found = _DATE.fullmatch(text)
    try:
        return found is not None and bool(date(*map(int, found.groups())))
    except ValueError:  # the RFC has a year 0, which Python has not
        return text[:4] == "0000" and _is_date("2000" + text[4:])


def _is_time(text: str) -> bool:
    found = _TIME.fullmatch(text)
    if found is None:
        return False
    hour, minute, second = map(int, found.groups()[:3])
    if int(found[5] or 0) > 23 or int(found[6] or 0) > 59:
        return False
    shift = (60 * int(found[5]) + int(found[6])) * (-1 if found[4] == "+" else 1) if found[4] else 0
    # a leap second is the last of a day of UTC
    is_leap = second == 60 and (60 * hour + minute + shift) % 1440 == 1439
    return hour < 24 and minute < 60 and (second < 60 or is_leap)


def _is_host(text: str) -> bool:
    return len(text) < 254 and all(
        _LABEL.fullmatch(part) and (part[2:4] != "--" or _is_wide_label(part)) for part in text.split(".")
    )


def _is_wide_label(label: str) -> bool:
    """Whether `xn--...` is a label of RFC 5891; without the package idna only its form is checked."""
    if label[:4].lower() != "xn--":
        return False
    try:
        import idna
    except ModuleNotFoundError:
        return True
    try:
        return bool(idna.decode(label.lower()))
    except UnicodeError:
        return False


def _is_mail(text: str, local: re.Pattern[str]) -> bool:
    name, _, host = text.rpartition("@")
    literal = host[1:-1] if host[:1] + host[-1:] == "[]" else None
    if literal is not None:
        is_host = _is_ip(IPv6Address, literal[5:]) if literal[:5] == "IPv6:" else _is_ip(IPv4Address, literal)
    else:
        is_host = _is_host(host) or (local is _WIDE_LOCAL and not host.isascii() and "@" not in host)
    return is_host and (local.fullmatch(name) is not None or _LOCAL.fullmatch(name) is not None)


def is_pattern(text: str) -> bool:
    """Whether a text is a pattern of ECMA 262 that can be applied here."""
    try:
        return bool(re.compile(python_pattern(text)))
    except (re.error, ValueError, RecursionError, OverflowError):
        return False


FORMATS: dict[str, Callable[[str], bool] | re.Pattern[str]] = {
    "date": _is_date,
    "time": _is_time,
    "date-time": lambda text: text[10:11] in ("T", "t") and _is_date(text[:10]) and _is_time(text[11:]),
    "duration": re.compile(
        r"P(?:[0-9]+W|(?=[0-9T])(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)?"
        r"(?:T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))?)"
    ),
    "email": lambda text: _is_mail(text, _LOCAL),
    "idn-email": lambda text: _is_mail(text, _WIDE_LOCAL),
    "hostname": _is_host,
    "host-name": _is_host,
    "ipv4": lambda text: _is_ip(IPv4Address, text),
    "ip-address": lambda text: _is_ip(IPv4Address, text),
    "ipv6": lambda text: _is_ip(IPv6Address, text),
    "uri": lambda text: _is_address(text, "uri"),
    "uri-reference": lambda text: _is_address(text, "uri", may_be_relative=True),
    "iri": lambda text: _is_address(text, "iri"),
    "iri-reference": lambda text: _is_address(text, "iri", may_be_relative=True),
    "uri-template": re.compile(
        rf"(?:[^\x00-\x20\"%<>\\^`{{|}}\x7f]|{_HEX}|\{{[+#./;?&=,!@|]?{_VARIABLE}(?:,{_VARIABLE})*\}})*"
    ),
    "uuid": re.compile(r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"),
    "json-pointer": re.compile(_POINTER),
    "relative-json-pointer": re.compile(rf"(?:0|[1-9][0-9]*)(?:#|{_POINTER})"),
    "regex": is_pattern,
}


def has_format(name: str, text: str) -> bool:
    """Whether a text has one of `FORMATS`."""
    test = FORMATS[name]
    return test.fullmatch(text) is not None if isinstance(test, re.Pattern) else test(text)


_ESCAPE = re.compile(
    r"\\(?:(?P<set>[pP])\{(?P<name>[^{}]{1,60})\}|c(?P<control>[A-Za-z])|u\{(?P<code>[0-9A-Fa-f]{1,6})\}|k<(?P<group>\w+)>"
    r"|(?P<plain>x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[dDwWbBtnrvfsS0-9]|[^A-Za-z0-9]))|(?P<other>\\.?)|(?P<mark>\[\^?\]|[\[\]$]|\(\?<(?=[A-Za-z_])|\(\?(?![:=!<]))",
    re.S,
)
_SPACE = r"\s\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_LONG_NAMES = {
    "letter": "L", "uppercase_letter": "Lu", "lowercase_letter": "Ll", "titlecase_letter": "Lt", "modifier_letter": "Lm",
    "other_letter": "Lo", "mark": "M", "number": "N", "decimal_number": "Nd", "digit": "Nd", "punctuation": "P", "symbol": "S",
    "currency_symbol": "Sc", "math_symbol": "Sm", "separator": "Z", "space_separator": "Zs", "other": "C", "control": "Cc",
}  # fmt: skip


@lru_cache(maxsize=64)
def _category(name: str) -> str:
    """The inside of a class of all characters of a general category.

    Raises:
        ValueError: there is no such category.
    """
    short = name.rpartition("=")[2]
    short = _LONG_NAMES.get(short.lower(), short)
    kinds = [unicodedata.category(chr(code)).startswith(short) for code in range(0x110000)]
    starts = [code for code, now in enumerate(kinds) if now and not (code and kinds[code - 1])]
    ends = [code for code, now in enumerate(kinds) if now and not (code < 0x10FFFF and kinds[code + 1])]
    if not starts:
        raise ValueError(f"no category {name}")
    return "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in zip(starts, ends, strict=True))


def python_pattern(pattern: str) -> str:
    """A pattern of ECMA 262, read with its flag for Unicode, as one of `re`.

    Raises:
        ValueError: an escape or a property that it does not have.
    """
    inside = False

    def written(found: re.Match[str]) -> str:
        nonlocal inside
        if name := found["name"]:
            body, is_other = _category(name), found["set"] == "P"
            if inside and is_other:
                raise ValueError("a negated property in a class")
            return body if inside else f"[{'^' if is_other else ''}{body}]"
        if found["control"]:
            return f"\\x{ord(found['control']) % 32:02x}"
        if found["code"]:
            return f"\\U{int(found['code'], 16):08x}"
        if found["group"]:
            return f"(?P={found['group']})"
        if found["other"]:
            raise ValueError(f"an escape {found['other']}")
        if (plain := found["plain"]) in ("s", "S"):
            if inside:
                return _SPACE if plain == "s" else "\\S"
            return f"[{'^' if plain == 'S' else ''}{_SPACE}]"
        if plain:
            return f"\\{plain}"
        mark = found["mark"]
        if mark == "(?" and not inside:
            raise ValueError("a group that is none of ECMA 262")
        was_inside, inside = inside, mark == "[" or (inside and mark[-1] != "]")
        if was_inside:
            return mark.replace("[", "\\[")
        return {"$": r"\Z", "(?<": "(?P<", "[]": "(?!)", "[^]": r"[\s\S]"}.get(mark, mark)

    return "(?a)" + _ESCAPE.sub(written, pattern)
