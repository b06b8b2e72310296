"""Units: their names with dimension and size, so that two can agree or be converted, and what stands after a number.

How this works: a table gives the units by dimension. `canonical_unit` makes one name of the words behind a number,
`units_agree` compares two such names, `conversion` returns the factor between them where both have a size. `read_unit` collects
words and powers behind a value; `read_compound` reads `1 hour 40 minutes` from the plain text.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from grpo_verifiers.maths import patterns
from grpo_verifiers.maths.reading.tokens import END, UNIT_STOP, Cursor, Unreadable
from grpo_verifiers.maths.reading.tree import Node, mul, number, symbols
from grpo_verifiers.maths.reading.vocabulary import PERCENT_WORDS, names
from grpo_verifiers.maths.reading.words import CARDINALS, FRACTION_WORDS, HEDGES, NOT_NOUNS

_POWER_WORDS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
_NAMELESS = frozenset(("unit", "units"))
DIRECTIONS = frozenset(("more", "less"))
"""Words that may be left off beside a number or a unit, but contradict each other."""
_RENAMED = {"mi / h": "mph", "km / h": "kmh", "degree celsius": "celsius", "degree fahrenheit": "fahrenheit"}
_DEGREES = {"acre": "2", "hectare": "2", "volume": "3"}
"""Powers of length that dimensions measure without saying so."""
_DIMENSIONS = frozenset(("time", "length", "mass"))
_QUALITIES = names("odd even prime composite positive negative nonnegative integer real rational irrational")
"""What is said of a number rather than counted by it: `n >= 3 odd` is not `n >= 3`."""

_ENDS = names("least most minimum maximum")


class Unit(NamedTuple):
    """`size` in the base unit of `dimension`; None where nothing converts."""

    name: str
    dimension: str
    size: Fraction | None


_TABLE = """
nm length 1/1000000000 nanometer nanometers
um length 1/1000000 micrometer micrometers micron microns
mm length 1/1000 millimeter millimeters millimetre millimetres
cm length 1/100 centimeter centimeters centimetre centimetres
dm length 1/10 decimeter decimeters
m length 1 meter meters metre metres
km length 1000 kilometer kilometers kilometre kilometres kms
in length 127/5000 inch inches
ft length 381/1250 foot feet
yd length 1143/1250 yard yards yds
mi length 201168/125 mile miles
mg mass 1/1000000 milligram milligrams
g mass 1/1000 gram grams gm
kg mass 1 kilogram kilograms kgs kilo kilos
ton mass 1000 tons tonne tonnes
lb mass 45359237/100000000 lbs pound pounds
oz mass 45359237/1600000000 ounce ounces
ms time 1/1000 millisecond milliseconds
s time 1 sec secs second seconds
min time 60 mins minute minutes
h time 3600 hr hrs hour hours
day time 86400 days
week time 604800 weeks
month month 1 months
year month 12 years yr yrs
decade month 120 decades
century month 1200 centuries
mL volume 1/1000 ml milliliter milliliters millilitre millilitres
L volume 1 l liter liters litre litres
gal volume 473176473/125000000 gallon gallons
qt volume 473176473/500000000 quart quarts
pt volume 473176473/1000000000 pint pints
cup volume 473176473/2000000000 cups
dollar money 1 dollars usd bucks
cent money 1/100 cents penny pennies
euro euro 1 euros eur
gbp gbp 1 quid
yen yen 1 jpy
rupee rupee 1 rupees inr rs
degree angle 1 degrees deg degs
radian angle - radians rad rads
mph speed 1397/3125
kmh speed 5/18 kph kmph
celsius temperature -
fahrenheit temperature -
kelvin temperature - kelvins K
square - -
N force 1 newton newtons
J energy 1 joule joules
W power 1 watt watts
kW power 1000 kilowatt kilowatts
Hz frequency 1 hertz
V volt 1 volt volts
A ampere 1 amp amps ampere amperes
Pa pressure 1 pascal pascals
ohm resistance 1 ohms
kN force 1000 kilonewton kilonewtons
M concentration - molar
mol amount 1 mole moles
kJ energy 1000 kilojoule kilojoules
cal energy 523/125 calorie calories
kcal energy 4184 kilocalorie kilocalories
eV energy -
keV energy -
MeV energy -
kPa pressure 1000 kilopascals
MPa pressure 1000000 megapascals
atm pressure 101325 atmospheres
kHz frequency 1000 kilohertz
MHz frequency 1000000 megahertz
coulomb charge 1 coulombs
tesla flux - teslas
farad capacity - farads
am clock -
pm clock -
acre acre 1 acres
hectare hectare 1 hectares ha
"""

UNITS: dict[str, Unit] = {}
for _line in _TABLE.strip().splitlines():
    _name, _dimension, *_rest = _line.split()
    _size = None if not _rest or _rest[0] == "-" else Fraction(_rest[0])
    _unit = Unit(_name, _dimension, _size)
    for _alias in (_name, *_rest[1:]):
        UNITS[_alias] = _unit

GENERIC = names(
    "unit units way ways time times item items total totals piece pieces number numbers value values solution "
    "solutions possibility possibilities arrangement arrangements outcome outcomes more less left altogether each "
    "exactly only approximately about"
)
"""Nouns that mean no unit: they never contradict one."""

SCALES: dict[str, Fraction | int] = {
    "dozen": 12, "tens": 10, "tenths": Fraction(1, 10), "hundredths": Fraction(1, 100), "thousandths": Fraction(1, 1000),
    "hundred": 10**2, "hundreds": 10**2, "thousand": 10**3, "thousands": 10**3, "million": 10**6, "millions": 10**6,
    "billion": 10**9, "billions": 10**9, "bn": 10**9, "trillion": 10**12, "trillions": 10**12,
}  # fmt: skip
LETTERS = frozenset("mgshLlNJWVAKM")
"""One-letter units; read as units only in upright text or apart from the number."""

SHORT = names(
    "mm cm dm km in ft yd yds mi mg kg kgs lb lbs oz ms sec secs min mins hr hrs ml mL gal qt mph kmh kph usd USD EUR "
    "GBP INR kW Hz kHz MHz Pa kPa MPa atm kN kJ eV keV MeV cal kcal pm am deg rad sq cu ha mole mol pct"
)
"""Unit names of a few letters that are not read as products of variables when they follow a number."""


def singular(word: str) -> str:
    """A crude singular, good enough to compare two nouns."""
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("ses", "xes", "ches")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and len(word) > 3 and not word.endswith("ss") else word


def find_unit(word: str) -> Unit | None:
    """The unit of this name, if there is one; case matters only where it distinguishes units."""
    return UNITS.get(word) or UNITS.get(word.lower())


def canonical_unit(words: tuple[str, ...]) -> str:
    """One name for a run of unit words: (`square`, `feet`) and (`ft`, `^2`) are both `ft^2`; generic nouns vanish.

    Powers come in as `^2`, divisions as `/`. Unknown words are kept in the singular.
    """
    out: list[str] = []
    power = 1
    for i, word in enumerate(words):
        low = word.lower()
        # a power keeps its unit, however nameless: square units are no cubic ones
        is_generic = low in GENERIC and not (low in _NAMELESS and (power > 1 or _is_raised(words, i)))
        if word.startswith("^"):
            if out and out[-1] != "/":
                # `m s^-1` is `m / s`
                if word.startswith("^-"):
                    out.insert(-1, "/")
                out[-1] += "" if word == "^-1" else word.replace("-", "")
        elif low in ("squared", "cubed"):
            if out:
                out[-1] += f"^{_POWER_WORDS[low]}"
        elif low in _POWER_WORDS:
            power = _POWER_WORDS[low]
        elif word == "/" or low == "per" or (low in ("a", "an") and out):
            out.append("/")
        elif low in DIRECTIONS:
            out.append(low)
        elif is_generic or (low in ("of", "the", "in", "or", "are", "is") and not (low == "in" and _is_inch(words, i))):
            continue
        else:
            unit = find_unit(word)
            name = unit.name if unit else singular(low)
            out.append(name if power == 1 else f"{name}^{power}")
            power = 1
    text = " ".join(out).rstrip(" /")  # a stroke in front stays: `per hour` is no hour
    return _RENAMED.get(text, text)


def _is_raised(words: tuple[str, ...], i: int) -> bool:
    """Whether a power other than one stands behind a word of a unit."""
    after = words[i + 1].lower() if i + 1 < len(words) else ""
    return after in ("squared", "cubed") or (after.startswith("^") and after != "^1")


def _undirected(name: str) -> tuple[str, str]:
    """A canonical name without its direction, and the direction."""
    words = name.split()
    if DIRECTIONS.isdisjoint(words):
        return name, ""
    found = [word for word in words if word in DIRECTIONS]
    return " ".join(word for word in words if word not in DIRECTIONS), found[0]


def _is_inch(words: tuple[str, ...], i: int) -> bool:
    """Whether `in` is the unit: alone, below a stroke, or with a power."""
    return (
        len(words) == 1
        or (i > 0 and words[i - 1] in ("/", "per"))
        or words[i + 1 : i + 2] == ("/",)
        or (i + 1 < len(words) and words[i + 1].startswith("^"))
        or (i > 0 and words[i - 1].lower() in _POWER_WORDS)
    )


_COMPOSED = {
    "psi": "lb / in^2",
    "mph": "mi / h",
    "kmh": "km / h",
    "J": "N m",
    "W": "J / s",
    "Pa": "N / m^2",
    "rpm": "revolution / min",
}


def _powers(name: str) -> dict[str, int]:
    """Units of a product or quotient with their exponents: `lb / in^2` is lb to 1 and in to -2."""
    powers: dict[str, int] = {}
    sign = 1
    for part in name.split():
        if part == "/":
            sign = -1
            continue
        base, _, power = part.partition("^")
        powers[base] = powers.get(base, 0) + sign * (int(power) if power.isdigit() else 1)
    return powers


def is_known(name: str) -> bool:
    """Whether every part of a canonical name is a unit of the table."""
    return all(part in UNITS for part in _powers(_COMPOSED.get(name, name)))


def split_unit(name: str) -> tuple[Unit, int] | None:
    """`ft^2` -> (foot, 2); None if it is not one known unit to a power."""
    base, _, power = name.partition("^")
    unit = UNITS.get(base)
    if unit is None or (power and not power.isdigit()):
        return None
    return unit, int(power or 1)


def units_agree(a: str, b: str) -> bool:
    """Whether two canonical unit names may measure one quantity; a missing one always may."""
    if not a or not b or a == b:
        return True
    (a, toward), (b, other) = _undirected(a), _undirected(b)
    if toward and other and toward != other:
        return False
    if not a or not b or a == b:
        return True
    if a.startswith("unit^") or b.startswith("unit^"):
        # square or cubic units beside another unit: one of the same power, or a noun that only counts
        nameless, other = (a, b) if a.startswith("unit^") else (b, a)
        base, _, power = other.partition("^")
        unit = UNITS.get(base)
        if unit is None and not power:
            return " " not in other
        return (power or _DEGREES.get(unit.dimension if unit else "", "1")) == nameless.partition("^")[2]
    known_a, known_b = split_unit(a), split_unit(b)
    if "/" in a or "/" in b or a in _COMPOSED or b in _COMPOSED or (" " in a and " " in b):
        # by their powers: `N m` and `J` are one unit, though no word of them is. The same known units to the same powers, and no other noun contradicted
        first, second = _powers(_COMPOSED.get(a, a)), _powers(_COMPOSED.get(b, b))
        known = [{k: n for k, n in powers.items() if k in UNITS} for powers in (first, second)]
        if known[0] != known[1]:
            return False
        left, right = first.items() - known[0].items(), second.items() - known[1].items()
        return left <= right or right <= left
    if known_a and known_b:
        # known and not the same, but for names with two meanings: a pound, a degree
        return {a, b} in ({"lb", "gbp"}, {"celsius", "degree"}, {"fahrenheit", "degree"})
    if known_a or known_b:
        return False
    # nouns that only count: `red balls` and `balls` do not contradict each other
    return set(a.split()) <= set(b.split()) or set(b.split()) <= set(a.split())


def conversion(a: str, b: str) -> Fraction | None:
    """How many `b` are one `a`, if both measure the same."""
    known_a, known_b = split_unit(_undirected(a)[0]), split_unit(_undirected(b)[0])
    if known_a is None or known_b is None:
        return None
    (first, n), (second, m) = known_a, known_b
    # square feet are no length: the powers must agree as well
    if first.dimension != second.dimension or n != m or first.size is None or second.size is None:
        return None
    return (first.size / second.size) ** n


def read_compound(plain: str) -> Node | None:
    """The sum in its smallest unit, or None. Every part but the first is less than one of the unit before it."""
    match = patterns.COMPOUND.fullmatch(plain)
    if match is None:
        return None
    total, last = Fraction(0), None
    for amount, name in zip(match.groups()[::2], match.groups()[1::2], strict=True):
        if amount is None:
            continue
        unit = find_unit(name)
        if unit is None or unit.size is None or unit.dimension not in _DIMENSIONS:
            return None
        # `1 hour 90 minutes`, `5 ft 14 in`: two quantities, or a slip
        if last is not None and not (
            unit.dimension == last.dimension
            and unit.size is not None
            and last.size is not None
            and Fraction(amount) * unit.size < last.size
        ):
            return None
        total += Fraction(amount) * unit.size
        last = unit
    if last is None or last.size is None:
        return None
    # the mark lets the comparison convert this one whatever the option is: no unit of it is the only right one
    return ("unit", number(total / last.size), last.name + "+")


def _counts_letters(words: list[str]) -> bool:
    """Whether words behind a letter can be its unit: `n coins` and `x cm`, not `n must be prime`."""
    if len(words) == 1 and words[0].endswith("s"):
        return True
    bare = ("/", "per", "square", "cubic", "sq")
    return all(find_unit(w) or w.startswith("^") or w.lower() in GENERIC or w in bare for w in words)


def read_unit(cursor: Cursor, node: Node) -> Node:
    """The value with the unit words behind it; a hedge or a second number among them is unreadable."""
    words: list[str] = []
    brackets = False
    while True:
        token = cursor.peek()
        value = token.value
        if token.kind in ("w", "u"):
            low = value.lower()
            if value in UNIT_STOP:
                return _with_unit(node, words)
            if low in CARDINALS:
                # two numbers are two answers
                raise Unreadable("a second number")
            if _is_bound(cursor) or low in HEDGES or low in NOT_NOUNS:
                # a doubt or a bound is no unit: it must not be paid as the number before it
                raise Unreadable("a hedge")
            if low in ("squared", "cubed") and not words:
                raise Unreadable("a hedge")
            cursor.at += 1
            if value == "$":
                words.append("dollar")
                continue
            if low in PERCENT_WORDS or (low == "per" and cursor.peek().value.lower() == "cent"):
                cursor.at += low == "per"
                node = ("pct", node)
            elif low in SCALES and not words:
                # `3 million dollars`: the word scales the number, and the unit is still to come
                node = mul(node, number(SCALES[low]))
            elif low in FRACTION_WORDS and (low.endswith("s") or low == "half") and not words and node[0] == "n":
                node = ("/", node, number(FRACTION_WORDS[low]))
            elif low in ("st", "nd", "rd", "th") and not token.spaced and not words:
                continue
            else:
                words.append(value)
        elif value == "^" and words:
            cursor.at += 1
            words.append("^" + _unit_power(cursor))
        elif at_rate(cursor) or (
            # a sign between two names of units: `N*m`
            words and cursor.peek().value in ("*", "-", ".") and cursor.peek(1).kind in ("w", "u", "s")
        ):
            cursor.at += 1
            if value == "/":
                words.append("/")
                brackets = cursor.take("(")
        elif (
            token.kind == "s" and words and value in "smhLg" and cursor.tokens[cursor.at - 1].value in ("/", "*")
        ) or (brackets and token.kind == "s"):
            cursor.at += 1
            words.append(value)
        elif value == ")" and brackets:
            cursor.at += 1
            brackets = False
        elif value == "." and cursor.peek(1) is END:
            cursor.at += 1
        else:
            return _with_unit(node, words)


def _is_bound(cursor: Cursor) -> bool:
    """Whether `at most` or the like follows, which makes a bound of the number."""
    ahead = 2 if cursor.peek(1).value.lower() in ("the", "a") else 1
    return cursor.peek().value.lower() == "at" and cursor.peek(ahead).value.lower() in _ENDS


def _with_unit(node: Node, words: list[str]) -> Node:
    if words and words[-1].lower() in _QUALITIES:
        raise Unreadable("a quality")
    name = canonical_unit(tuple(words))
    if name and symbols(node) and not _counts_letters(words):
        raise Unreadable("a sentence about a letter")
    if not words or (not name and all(w.lower() in GENERIC for w in words)):
        return node
    return ("unit", node, name) if name else node


def at_rate(cursor: Cursor) -> bool:
    """A stroke before the name of a unit, `3/hour`, or before several in brackets, `4.2 J/(g K)`."""
    behind = cursor.tokens[cursor.at - 1].kind if cursor.at else ""
    if (
        behind == "w"
        and cursor.peek().value == "/"
        and cursor.peek(1).value == "("
        and cursor.peek(2).kind in ("w", "s")
    ):
        return True
    named = ("w", "u", "s") if behind in ("w", "u", "s") else ("w",)
    return cursor.peek().value == "/" and cursor.peek(1).kind in named


def _unit_power(cursor: Cursor) -> str:
    braced = cursor.take("{")
    sign = "-" if cursor.take("-") else ""
    token = cursor.peek()
    if token.kind != "n":
        raise Unreadable("a power of a unit")
    cursor.at += 1
    if braced:
        cursor.need("}")
    return sign + token.value


def read_degrees(cursor: Cursor, node: Node) -> Node:
    """The value as an angle, or as a temperature where the sign is followed by its scale."""
    after = cursor.peek()
    is_scale = after.value in ("C", "F", "K", "Celsius", "celsius", "Fahrenheit")
    if is_scale and cursor.peek(1).value in ("", ",", ".", "}"):
        cursor.at += 1
        cursor.currency = "celsius" if after.value[0] in "Cc" else "fahrenheit"
        return node
    # `60°42'` is 607/10 degrees; sixty minutes and more are no angle in this notation
    for part, marks in ((60, ("'",)), (3600, ('"', "''"))):
        mark = cursor.peek(1).value + (cursor.peek(2).value if cursor.peek(2).value == "'" else "")
        if node[0] == "n" and cursor.peek().kind == "n" and mark in marks:
            size = Fraction(cursor.peek().value)
            if size >= 60:
                raise Unreadable("an angle of sixty minutes")
            cursor.at += 1 + len(mark)
            node = number(node[1] + size / part)
    return ("deg", node)
