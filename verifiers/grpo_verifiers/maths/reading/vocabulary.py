"""The names LaTeX and plain text use, in tables. No logic lives here."""

from __future__ import annotations


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


TEXT_MACROS = names(
    """
    text mbox textrm textup textnormal textsf texttt hbox textmd mathtext
    """
)
"""Macros whose argument is upright text."""

FONT_MACROS = names(
    """
    mathrm mathbf textbf boldsymbol bold bm pmb mathit mathsf mathtt mathcal mathscr mathfrak textit
    underline emph operatorname mathop boxed fbox framebox ensuremath displaylines substack smash uline
    textsc mathnormal vec hat widehat tilde widetilde overrightarrow mathbin mathord mathrel mathopen
    mathclose mathpunct llap rlap underbar
    """
)
"""Macros that only dress their argument."""

HIDDEN_MACROS = names(
    """
    phantom hphantom vphantom label tag cancel bcancel xcancel hspace vspace sout footnote ref eqref st
    kern cellcolor
    """
)
"""Macros whose argument is not shown as part of the answer."""

COLOUR_MACROS = names(
    """
    textcolor colorbox fcolorbox href
    """
)
"""Macros whose first argument is no content."""

MATRIX_ENVIRONMENTS = names(
    """
    matrix pmatrix bmatrix Bmatrix vmatrix Vmatrix smallmatrix array psmallmatrix bsmallmatrix
    """
)

ALIGNED_ENVIRONMENTS = names(
    """
    aligned align alignedat equation gather gathered split multline eqnarray center flalign
    """
)

FUNCTIONS = names(
    """
    sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth ln log lg exp
    sqrt abs min max gcd lcm floor ceil asin acos atan det lim mod cbrt cis tg ctg arctg cosec arg sgn
    """
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
    """
    alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi
    chi psi omega Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega ell hbar aleph imath jmath Pi
    """
)

SYNONYMS = {
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "nicefrac": "frac", "sfrac": "frac", "dbinom":
    "binom", "tbinom": "binom", "leq": "le", "leqslant": "le", "leqq": "le", "geq": "ge", "geqslant": "ge",
    "geqq": "ge", "neq": "ne", "lt": "<", "gt": ">", "varnothing": "emptyset", "O": "emptyset", "land":
    "and", "wedge": "and", "lor": "or", "vee": "or", "lbrace": "{", "rbrace": "}", "lvert": "|", "rvert":
    "|", "vert": "|", "lbrack": "[", "rbrack": "]", "lparen": "(", "rparen": ")", "dots": "ldots", "cdots":
    "ldots", "dotsc": "ldots", "dotsb": "ldots", "vdots": "ldots", "ddots": "ldots", "dotso": "ldots",
    "ast": "*", "times": "*", "cdot": "*", "bullet": "*", "div": "/", "colon": ":", "slash": "/", "degree":
    "circ", "textdegree": "circ", "percent": "%", "rightarrow": "to", "longrightarrow": "to",
    "Longrightarrow": "to", "Rightarrow": "to", "implies": "to", "iff": "to", "smallsetminus": "setminus",
    "backslash": "setminus", "bigcup": "cup", "bigcap": "cap", "isin": "in", "reals": "Reals", "asin":
    "arcsin", "acos": "arccos", "atan": "arctan", "thickapprox": "approx", "simeq": "approx", "doteq":
    "approx", "approxeq": "approx", "prime": "'", "tg": "tan", "ctg": "cot", "arctg": "arctan", "cosec":
    "csc", "mid": "mid", "textbar": "|", "colonequals": "=", "coloneqq": "=", "dollar": "$", "lang":
    "langle", "rang": "rangle", "bar": "overline", "cong": "=", "infin": "infty", "minus": "-", "plus": "+",
    "semicolon": ";", "plusmn": "pm", "ohm": "Omega", "cr": "newline",
}  # fmt: skip
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
    """
    sum prod int iint iiint oint lim det gcd lcm bmod pmod mod partial nabla limsup liminf sup forall
    exists neg angle perp parallel triangle measuredangle Re Im deg dim ker Pr hom operatorname limits
    odot otimes oplus star dagger overbrace underbrace overset underset stackrel substack xrightarrow
    input write include def newcommand url
    """
)
"""Operations that are not carried out: an answer that restates the task is none."""

TRIGONOMETRIC = names(
    """
    sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan arccot arcsec arccsc
    """
)

INVERSES = {
    "sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot", "sec": "arcsec", "csc": "arccsc",
}  # fmt: skip

CURRENCIES = {
    "$": "dollar", "pounds": "gbp", "euro": "euro", "yen": "yen", "rupee": "rupee", "cents": "cent",
}  # fmt: skip

NUMBER_SETS = {
    "setR": "R", "setZ": "Z", "setN": "N", "setQ": "Q", "setC": "C", "Reals": "R",
}  # fmt: skip

CLOSERS = names(
    """
    ) ] } rangle rfloor rceil | end:matrix end:array end:cases endaligned
    """
)

PERCENT_WORDS = names(
    """
    percent percentage pct percents
    """
)
