"""The names LaTeX and plain text use, in tables. No logic lives here.

How to read it: words of other languages behind numbers come first (units are named as in English; what compares, joins
or denies is no noun), then the macros, functions, relations and symbols of LaTeX by what the lexer does with them.
"""

from __future__ import annotations


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


_TABLE = """
yen 円 엔
yuan 元 人民币 块 块钱
won 원
ruble рубль рубля рублей руб р
euro евро 欧元
dollar 美元 долларов доллара доллар 달러 ドル
h 小时 時間 时 ч час часа часов 시간
min 分钟 分間 мин минут минута минуты 분
s 秒 秒间 сек секунд секунда секунды 초
day 天 日 日間 дней день дня 일
week 周 星期 недель недели неделя 週間
month 个月 ヶ月 か月 месяцев месяца месяц
year 年 лет год года 년
m 米 метр метра метров м メートル 公尺
cm 厘米 см 公分 センチ センチメートル
mm 毫米 мм
km 千米 公里 км キロ キロメートル
kg 千克 公斤 кг キログラム
g 克 г грамм グラム
ton 吨 тонн т
L 升 л литров リットル
mL 毫升 мл
degree 度 градусов градуса градус
"""


def called(table: str, separator: str = "\n") -> dict[str, str]:
    """The words of each entry under its first."""
    return {
        word: name for entry in table.strip().split(separator) for name, *words in [entry.split()] for word in words
    }


UNITS = called(_TABLE)
"""Unit names of other languages under the English one."""

_PHRASES = {
    "no solution": """
        无解, 無解, 方程无解, 无实数解, 無實數解, 没有解, 解なし, 解はない, 해가 없다, 해 없음, нет решений, решений нет, нет корней,
        keine lösung, keine lösungen, aucune solution, pas de solution, sin solución, no hay solución, sem solução, nessuna soluzione
    """,
    "does not exist": "不存在, 存在しない, не существует, n'existe pas, no existe, existiert nicht, não existe, non esiste",
    "infinitely many": "无穷多解, 无数解, 有无穷多解, бесконечно много, бесконечно много решений, unendlich viele, unendlich viele lösungen",
}
PHRASES = {
    " ".join(phrase.replace("'", "").split()): name for name, listed in _PHRASES.items() for phrase in listed.split(",")
}
"""Answers in whole phrases of other languages, in lower case, and what each is called in English."""

_POWERS = {"平方": "square", "立方": "cubic", "кв": "square", "куб": "cubic"}
_COMPARING = (
    "以上", "以下", "以内", "以外", "未满", "未滿", "超过", "超過", "至少", "至多", "大于", "小于", "不", "非", "没", "이상", "이하",
    "미만", "초과",
)  # fmt: skip
_DENYING = names("более менее больше меньше выше ниже не ない 아니")
JOINING = {
    "或": "or", "或者": "or", "или": "or", "または": "or", "和": "and", "и": "and", "と": "and", "또는": "or", "또": "or",
    "ou": "or", "oder": "or", "oppure": "or", "et": "and", "und": "and",
}  # fmt: skip
LETTER_JOINING = {"o": "or", "y": "and", "e": "and"}
"""Words of one letter (Spanish, Italian), which count only where they stand alone in upright text between two values."""


def words_of(run: str) -> list[str]:
    """The English names of a run of letters, itself if unknown, `not` where it compares or denies."""
    low = run.lower()
    if low in JOINING:
        return [JOINING[low]]
    if low in UNITS:
        return [UNITS[low]]
    for prefix, name in _POWERS.items():
        if low.startswith(prefix) and (low[len(prefix) :] in UNITS or low == prefix):
            return [name, UNITS[low[len(prefix) :]]] if low != prefix else [name]
    # "at least", "not", "less than" behind a number change its value: English `not` makes the reader refuse it
    if low in _DENYING or any(part in low for part in _COMPARING):
        return ["not"]
    return [low]


TEXT_MACROS = names("text mbox textrm textup textnormal textsf texttt hbox textmd mathtext")
"""Macros whose argument is upright text."""

FONT_MACROS = names(
    "mathrm mathbf textbf boldsymbol bold bm pmb mathit mathsf mathtt mathcal mathscr mathfrak textit underline emph "
    "operatorname mathop boxed fbox framebox ensuremath displaylines substack smash uline textsc mathnormal vec hat "
    "widehat tilde widetilde overrightarrow mathbin mathord mathrel mathopen mathclose mathpunct llap rlap underbar"
)
"""Macros that only dress their argument."""

HIDDEN_MACROS = names(
    "phantom hphantom vphantom label tag cancel bcancel xcancel hspace vspace sout footnote ref eqref st kern cellcolor"
)
"""Macros whose argument is not shown as part of the answer."""

COLOUR_MACROS = names("textcolor colorbox fcolorbox href")
"""Macros whose first argument is no content."""

MATRIX_ENVIRONMENTS = names(
    "matrix pmatrix bmatrix Bmatrix vmatrix Vmatrix smallmatrix array psmallmatrix bsmallmatrix"
)

ALIGNED_ENVIRONMENTS = names("aligned align alignedat equation gather gathered split multline eqnarray center flalign")

FUNCTIONS = names(
    "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth ln log lg exp sqrt abs min "
    "max gcd lcm floor ceil asin acos atan det lim mod cbrt cis tg ctg arctg cosec arg sgn"
)
"""Names that are functions with or without a backslash."""

SPELT_SYMBOLS = {
    "pi": ("c", "pi"), "Pi": ("s", "Pi"), "infinity": ("c", "infty"), "inf": ("c", "infty"), "infty": ("c",
    "infty"), "oo": ("c", "infty"), "theta": ("s", "theta"), "alpha": ("s", "alpha"), "beta": ("s", "beta"),
    "gamma": ("s", "gamma"), "lambda": ("s", "lambda"), "sigma": ("s", "sigma"), "omega": ("s", "omega"),
    "phi": ("s", "phi"), "delta": ("s", "delta"), "epsilon": ("s", "epsilon"),
}  # fmt: skip
"""Symbols spelt out, as token kind and name."""

GREEK = names(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi chi psi omega "
    "Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega ell hbar aleph imath jmath Pi"
)

SYNONYMS = called(
    "frac dfrac tfrac cfrac nicefrac sfrac, binom dbinom tbinom, le leq leqslant leqq, ge geq geqslant geqq, ne neq, "
    "< lt, > gt, emptyset varnothing O, and land wedge, or lor vee, { lbrace, } rbrace, | lvert rvert vert textbar, [ "
    "lbrack, ] rbrack, ( lparen, ) rparen, ldots dots cdots dotsc dotsb vdots ddots dotso, * ast times cdot bullet, / "
    "div slash, : colon, circ degree textdegree, % percent, to rightarrow longrightarrow Longrightarrow Rightarrow "
    "implies iff, setminus smallsetminus backslash, cup bigcup, cap bigcap, in isin, Reals reals, arcsin asin, arccos "
    "acos, arctan atan arctg, approx thickapprox simeq doteq approxeq, ' prime, tan tg, cot ctg, csc cosec, = "
    "colonequals coloneqq cong, $ dollar, langle lang, rangle rang, overline bar, infty infin, - minus, + plus, ; "
    "semicolon, pm plusmn, Omega ohm, newline cr",
    ",",
)
"""Commands of one meaning, under one name."""

VARIANTS = {
    "varphi": "phi", "varepsilon": "epsilon", "vartheta": "theta", "varrho": "rho", "varsigma": "sigma",
    "varpi": "pi", "top": "T",
}  # fmt: skip
"""Glyph variants of one letter."""

RELATIONS = {
    "=": "=", "==": "=", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "!=": "!=", "le": "<=", "ge": ">=",
    "ne": "!=", "approx": "~", "to": "to", "=>": "to", "->": "to", "sim": "~", "in": "in", "notin": "notin",
    "equiv": "=", "subset": "subset", "subseteq": "subset", "propto": "propto",
}  # fmt: skip

REFUSED = names(
    "sum prod int iint iiint oint lim det gcd lcm bmod pmod mod partial nabla limsup liminf sup forall exists neg "
    "angle perp parallel triangle measuredangle Re Im deg dim ker Pr hom operatorname limits odot otimes oplus star "
    "dagger overbrace underbrace overset underset stackrel substack xrightarrow input write include def newcommand url"
)
"""Operations that are not carried out: an answer that restates the task is none."""

TRIGONOMETRIC = names("sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan arccot arcsec arccsc")

INVERSES = {
    "sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot", "sec": "arcsec", "csc": "arccsc",
}  # fmt: skip

CURRENCIES = {
    "$": "dollar", "pounds": "gbp", "euro": "euro", "yen": "yen", "rupee": "rupee", "cents": "cent",
}  # fmt: skip

NUMBER_SETS = {
    "setR": "R", "setZ": "Z", "setN": "N", "setQ": "Q", "setC": "C", "Reals": "R",
}  # fmt: skip

CLOSERS = names(") ] } rangle rfloor rceil | end:matrix end:array end:cases endaligned")

PERCENT_WORDS = names("percent percentage pct percents")
