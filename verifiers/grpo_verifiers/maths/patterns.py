r"""Every pattern of the maths verifier, by the module that looks with it; each takes time linear in its text.

`tests/property/test_patterns_are_linear.py` tries each on texts that repeat what it repeats. A possessive repetition (`*+`) is one
that never gives back what it took, which keeps a pattern linear.
"""

from __future__ import annotations

import re

from grpo_verifiers.maths.reading.vocabulary import FUNCTIONS

# fmt: off

# boxes.py
BOX = re.compile(r"\\(?:boxed|fbox|framebox)(?![a-zA-Z])")
BARE_BOX = re.compile(r"-?(?<![.,])[.,]*+\d++(?:[.,]++\d++)*+|\\[a-zA-Z]+|[A-Za-z0-9]")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
FILLER = re.compile(r"(?:\\[()\[\],;:! ]|\\quad|\\qquad|\$|\*\*|\s|~)+")
# What goes on with the formula behind its box: the box is not all of the answer.
GOES_ON = re.compile(r"\A\s*+(?:\^(?!\s*+\{?\s*+\\circ)|!(?=\s*+\$)|(?:[-+*/]|\\(?:times|cdot|pm|div)(?![a-zA-Z]))(?=\s*+(?:\d|\\(?:[dt]?frac|sqrt|pi)(?![a-zA-Z]))))")
# Digits, a fraction or the minutes of a clock that touch the box: with it they are one number.
NUMBER_GOES_ON = re.compile(r"\A(?:\.\d++|(?:\{?,\}?\d{3})++(?!\d)|\{?:\}?\d++|\d++|\s*+\\[dt]?frac(?![a-zA-Z])[^$\n]{1,40})")
# A factor behind a box in the same formula: `\\boxed{5}\\pi`, `\\boxed{5}x`.
FACTOR_GOES_ON = re.compile(r"\A\s*+(?:\\(?:sqrt|pi|theta|alpha|beta|lambda|phi|ln|log|sin|cos|tan|cot|sec|csc)(?![a-zA-Z])|[a-zA-Z](?![a-zA-Z{]))[^$\n=<>]{0,60}")
PROSE_GOES_ON = re.compile(r"\A(?:\\[)\]]|[\s$*])*+(?:and\s(?:a|one|two|three)[\s-](?:half|third|quarter|fourth)|(?:times|plus|minus|to)\s++[$\\]{0,2}\(?\s?-?(?:\d|\\[a-z]))", re.I)
FORMULA_ENDS = re.compile(r"\\[)\]]|\\(?:text|mathrm|quad|qquad|ldots|dots)(?![a-zA-Z])|[.,;:](?=\s|\Z)|\Z")
SCALE_BEHIND = re.compile(r"\A(?:\\[)\]]|[\s$*~]|\\text\s*+\{)*+(hundred|thousand|million|billion|trillion|dozen|lakh|crore)s?\b", re.I)
# A unit behind the box. Only words that are nothing else; letters such as `m` may be variables.
UNIT_BEHIND = re.compile(r"\A(?:\\[)\]]|[\s$*~]|\\(?:text|mathrm)\s*+\{)*+"
    r"((?:square |cubic )?(?:seconds?|minutes?|hours?|days?|weeks?|months?|years?|cents?|dollars?|euros?|degrees?|radians?"
    r"|inch(?:es)?|feet|foot|yards?|miles?|met(?:er|re)s?|centimet(?:er|re)s?|millimet(?:er|re)s?|kilomet(?:er|re)s?"
    r"|grams?|kilograms?|pounds?|ounces?|lit(?:er|re)s?|millilit(?:er|re)s?|gallons?|[ckm]m|kg|mg|km/h|mph))\b\}?(\^\{?\d\}?)?(?![\w/])", re.I)
# The name of any unit outside the formula of the box, or set upright in it: there a letter is no variable.
UNIT_OUTSIDE = re.compile(r"\A\}?(?:\s|~|\\[ ,;:!])*+(?:\$|\\[)\]]|\\(?:text|mathrm)(?=\s*+\{))[\s~{]*+((?:square |cubic |sq )?(?!(?:in|am|pm|pt|[aAI])\b)[A-Za-zΩμ°]{1,12}"
    r"(?:\^\{?-?\d\}?|[²³])?(?:\s?[/·]\s?[A-Za-z]{1,12}(?:\^\{?\d\}?|[²³])?)?)(?![\w^/])")
NUMBER_BEFORE = re.compile(r"(?:\$|\\\()\s*+(\d++:)\Z")
SIGN_BEFORE = re.compile(r"(?:^|[\s$(=\[{:]|\\\(|\\\[)[-−]\Z")
UNSEEN = re.compile(r"\\(?:[hv]?phantom|label|tag|x?cancel|sout|textcolor\s*\{white\})\s*\{\Z")
BOX_COMPARED = re.compile(r"(?:[\w})\]'&]\s*(?P<sign>[<>])|(?P<name>\\(?:lt|gt|neq?)(?![a-zA-Z])|≠))\s*\Z")
A_TAG = re.compile(r"</?[a-zA-Z|][^<>\s]*>\s*\Z")
DOLLAR = re.compile(r"(?<!\\)\$\$?")
SENTENCE_BEFORE = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{2,30}[,;:]?\s{1,3}[a-zA-Z]{2}")
UPRIGHT = re.compile(r"\\(?:text\w{0,6}|mbox|mathrm|tag|label)\s?\{([^{}]*)\}")
ROW = re.compile(r"\\\\|\\begin\s?\{[a-z]{1,12}\*?\}(?:\{[^{}]*\})?|\\(?:boxed|fbox)(?![a-zA-Z])")
CLOSED = re.compile(r"(?<!\\)\$|\\[)\]]|\\end(?![a-zA-Z])|\\\\|\n\s{0,9}\n")
BESIDE = re.compile(r"(?:\s|[&~{}]|\\[,;:!> ]|\\(?:q?quad|(?:display|text)style|left|right|mathbf|boldsymbol|bm|underline|[Ll]arge|LARGE|[Hh]uge)(?![a-zA-Z])"
    r"|\\(?:text)?color\s?\{\w{1,20}\})++")
RELATION = r"[=≈≡→⇒∴:,;.£€¥₹\x00]|\\(?:approx|equiv|sim(?:eq)?|cong|in|to|mapsto|therefore|iff|implies|(?:long)?rightarrow|(?:Long)?[Rr]ightarrow|[lg]e(?:q|qslant)?|pounds|euro|\$)"
READ_BEFORE = re.compile(rf"(?:{RELATION}|[<>≠≤≥]|\\(?:neq?|[lg]t))\Z")
READ_BEHIND = re.compile(rf"(?:{RELATION}|\\(?:AA|checkmark|blacksquare|square|Box|qed|[bp]?mod)(?![a-zA-Z])|[(\[](?:\x00|\s*+\\[bp]?mod(?![a-zA-Z])))")
MARK_BEHIND = re.compile(r"\^\s?\{?\s?\\circ(?![a-zA-Z])\s?\}?|\\?%|°")
BOX_LETTERS = re.compile(r"(?<![a-zA-Z])(?:\{[\s~]?([A-Za-z]+)\}|(?<![\\{^_])(nm|[kM]?eV|k[JN]|[kMG]Hz|Volt)(?![a-zA-Z]))")

# extract.py
BRACKETED_THINK = re.compile(r"\[/?THINK\]", re.I)
OR = re.compile(r"\A[,.;:\-–—(]*(?:or|ou|oder|oppure|或者?|или|または|또는|vs\.?|versus|maybe|possibly|perhaps|alternatively|otherwise|/|\||\\text\{(?:or|ou|oder|o)\}|\\lor|\\vee)"
    r"(?:[,:\-–—]|else|maybe|possibly|perhaps|even|alternatively|otherwise|it'?s|itis|it(?:could|can|may|might)be)*(?:[a-zA-Z](?:_\{?\w\}?)?=)?", re.I)
AND = re.compile(r"(?:,|;|and|&|,and|;and|et|und|y|和|и|と|\\text\{(?:and|et|und|y)\}|\\text\{,?and\}|\\land),?(?:[a-zA-Z](?:_\{?\w\}?)?=)?", re.I)
# What stands between boxes on lines of their own: nothing, or the label of a part.
PART = re.compile(r"[,;.]?(?:\(?([a-h]|i{1,3}|[1-8])\)[:.]?)?\Z")
OR_AT_END = re.compile(r"^[^.\n]*\bor\b[\s$\\(\[]*(?:[a-zA-Z](?:_\{?\w\}?)?\s*=\s*)?$")
OR_AFTER = re.compile(r"\A[\s$)\]\\*,.(]*+\b(?:or|alternatively)\b[\s,]*+(?:(?:maybe|possibly|perhaps|even|else|it could be|it is|is it)\s*+)?"
    r"(\$?\\?\(?\s*+(?:[a-zA-Z](?:_\{?\w\}?)?\s*+=\s*+)?(?:-?[\d.]|\\(?:d?frac|sqrt|pi))(?:[^\n.;]|\.(?=\d)){0,80})", re.I)
DENIES = (r"\s*(?:[.,;!?\n)]|$|(?:the|my|our|correct|right|it|true|valid|what|possible|acceptable|allowed|actually|really|\d|[$\\])"
    r"|an?\s+(?:answer|solution|valid|correct|possible))")
DENIED_AFTER = re.compile(r"\A[\s$)\]\\*,.\"'`]*+(?:(?:is|would be|was|are|seems)\s++(?:definitely |clearly |actually |just |also )?(?:not(?="
    + DENIES + r")|wrong|incorrect|false|n't)"
    r"|\?\s*+(?:no|nope|not)\b|\(?(?:just kidding|jk\b|not really)|or\s++(?:something else|some other|another|not\b|maybe not)"
    r"|(?:isn't|is n't|wouldn't be)(?=" + DENIES + r")|cannot be|can't be|must be wrong)\b", re.I)
RETRACTED = re.compile(r"\A[\s$)\]\\*,.!\"'`;:\-–—]*+(?:(?:but|however|though|wait|hmm|no|actually|oops|sorry)\b[,.!…\s]*)*(?:this|that|it|which|the answer|my answer)"
    r"(?:\s+(?:is|was|must be|seems|looks)|'s)\s+(?:\w+ly\s+|just\s+)?(?:wrong|incorrect|false|mistaken|not correct|not right|a mistake|an error)\b", re.I)
OR_NEXT = re.compile(r"\A([\s$.,*\\)]*+)(?:or\b|或)", re.I)
NOT_FINAL = re.compile(r"\b(?:previous|earlier|wrong|incorrect|initial|naive|old|tempting|false|former)\s*$", re.I)
DENIED_BEFORE = re.compile(r"(?:(?:\bnot|n't)\s+(?:think|believe|say|claim|mean)\s+(?:that\s+)?(?:it|this|the answer)(?:'s|\s+is|\s+equals)?"
    r"|\b(?:anything|everything) but|\b(?:other|rather) than|\binstead of|\b(?:is|are|was|be) not|\bisn't|\bnot equal to|\bcannot be|\bnot)[:$*\\(\[{\s]*+$", re.I)
COMPARED_BEFORE = re.compile(r"\b(?:more|less|greater|fewer|larger|smaller) than[\s$*\\(]*+\Z")
SIGNED_BEFORE = re.compile(r"\b(?:minus|negative|between [^.\n]{1,30} and)[\s$*\\(]*+\Z")
# A value before "or" and the box.
ALTERNATIVE_BEFORE = re.compile(r"(?:\A|[\s(])(\$[^$\n]{1,40}\$|-?\d++(?:\.\d++)?)\)?\s{1,3}(?:or|oder|ou)\s{1,3}(?:\$|\\\()?\s?\Z", re.I)
STATED_AFTER = re.compile(r"\b(?:final |correct |right |real |true |actual )?answer\s++(?:is|should be|must be|equals|would be)\b[:\s]*+((?:[$\d\\(-])[^\n]{0,80})", re.I)
WITHDRAWN = re.compile(r"(?:\b(?:actually|wait|no|correction|sorry|hmm|instead|hold on|oops|scratch that|on second thought)\b[^\n]{0,40})"
    r"\b(?:final |correct |right |real |true )?answer\s++(?:is|should be|must be)\b[:\s]*((?:[$\d\\(-]|not\b)[^\n]{0,80})", re.I)
EXTRACT_LABEL = re.compile(r"(?:\bfinal\s++|\bcorrect\s++|\bthe\s++)?\b(?:answer|correct (?:option|choice))\b\s*+(?:is|was|should be|equals|[:=]|\*\*\s*+[:=]|[:=]\s*+\*\*|\*\*\s*+is)"
    r"\s*+:?\s*+(?:\*\*)?"
    r"|^[#*\s>]{0,9}(?:final\s++)?answer[*\s:]{0,9}\n"
    r"|[【〖\[]\s*+(?:最终|最終|正确|正確|参考)?(?:答案|答え|答)\s*+[】〗\]]\s*+[:：]?|【\s*+(?:final\s++)?answer\s*+】\s*+:?"
    r"|(?:最终|最終)?(?:答案|答え)\s*+(?:是|为|為|は)?\s*+[:：]?|정답\s*+(?:은|:|：)|(?:Ответ|R[ée]ponse(?: finale)?|Respuesta(?: final)?|Antwort|Resposta|Risposta)\s*+[:：]", re.I | re.M)
# A last line that concludes, up to the value at its end; one that has a value in bold.
STATED_VALUE = r"(?:\$[^$\n]{1,80}\$|-?\\?\$?\d[\d.,/]*+(?:\\?%)?)"
CONCLUDED = re.compile(r"\A[\s>*-]*+(?:therefore|thus|so|hence|consequently|finally|in conclusion|in total|altogether)\b"
    rf"[^\n]{{1,300}}?(?:\b(?:is|are|equals|was)\b|[=:])\s*+({STATED_VALUE})[.!]?\Z", re.I)
BOLD_VALUE = re.compile(rf"\*\*({STATED_VALUE}(?<![.,])(?: [a-zA-Z]{{1,20}}){{0,3}})\*\*")
# A last line that is nothing but this, if it is read as a value or states that there is none.
LONE_BOLD = re.compile(r"\*\*([^*\n?:]{1,60})\*\*[.!]?")
STATES_NONE = re.compile(r"\b(?:does not exist|do not exist|doesn't exist|DNE|undefined|diverges|converges)\b")
EXTRACT_SAID = re.compile(r"(?:it|there|the(?:\s++[\w-]+){1,14}?)\s++(?:is|are|equals|was)\s*+:?\s*+(?=[-−+]?[\d$]|\\[a-z(\[])", re.I)
UNSAID = re.compile(r"\b(?:not|never|wrong|incorrect|false|if|unless|or|other|first|previous)\b", re.I)
HASHES = re.compile(r"####[ \t]*+([^\s#].*)")
# A number with a phrase behind it that holds no second one and does not take it back.
NUMBER_THEN_PHRASE = re.compile(r"\A(-?\\?\$?\d[\d.,/]*+(?<![.,])\\?%?(?: [a-zA-Z]{1,20}){0,2}?) "
    r"(?:in (?=[A-Z][a-z]|the |total|all )|(?:for|if|on|during|because|since|when) )[a-zA-Z' -]*+[.!]?")
SECOND_VALUE = re.compile(r"\b(?:or|and|but|not|never|no|else|other|otherwise|unless|while|maybe|perhaps|possibly|wrong|incorrect|false|correct|plus|minus"
    r"|times|more|less|every|hundred|thousand|million|billion|dozen|half|halves|thirds?|quarters?|percent|squared|cubed)\b|n't\b", re.I)
# An object of JSON with nothing in it but answers and what explains them; raw LaTeX is no escape of JSON.
JSON_VALUE = r"(\"(?:[^\"\\]|\\.)*+\"|-?\d[\d./eE+-]*+|true|false)"
JSON_KEY = r"\"(?:final[_ -]?)?answer\"\s*+:\s*+"
JSON_STATED = re.compile(JSON_KEY + JSON_VALUE, re.I)
JSON_OBJECT = re.compile(r"\{\s*+(?:(?:" + JSON_KEY + r"|\"(?:reasoning|explanation|thoughts?|rationale|steps|confidence|question|problem)\"\s*+:\s*+)"
    + JSON_VALUE + r"\s*+,?\s*+)++\}", re.I)
JSON_GAP = re.compile(r"(?:[\s`~,.;]|json|or|and)*+", re.I)
JSON_RAW = re.compile(r"(?<!\\)(?:\\\\)*+\\(?![\"/\\]|u(?![dD])[0-9a-fA-F]{4})")
VALUE = re.compile(r"\A(?:[-+−*$\\({\[.\d]|[A-Za-z]?\s*=)")
TAG = re.compile(r"<answer>", re.I)
TAG_END = re.compile(r"</answer>", re.I)
TAG_OR = re.compile(r"<answer>([^<]*)</answer>[\s,;.]{0,9}\b(?:or|alternatively)\b[\s:,]{0,9}\Z", re.I)
BARE = re.compile(r"\A\$?\\?\(?\s*+[-+−]?\$?\d[\d.,/\s%\\^{}]*\)?\$?\.?")
END_TOKENS = re.compile(r"(?:<\|[a-z_]+\|>|</s>|<eo[aehs]>|<[|｜]end▁of▁sentence[|｜]>|\[UNUSED_TOKEN_\d{1,4}\]|<end_of_turn>|<pad>|\[EOS\])++\s*+", re.I)
MARKUP = r"^[\s>*_#-]{0,9}"
HEAD = re.compile(MARKUP + r"(?:(<(?!answer|think)[A-Za-z_]{1,20}>)\s{0,9}|([A-Za-z][A-Za-z ]{0,20}:)[^\S\n*]{0,9}\**[^\S\n]{0,9})\S", re.M | re.I)

# reading/spelling.py
GLUED = re.compile(r"\\(q?quad)(?=[a-zA-Z])")
APART = re.compile(r"(?<=[\w})])(?<!quad)\s*+(?:\\q?quad\s*+)++(?=[a-zA-Z](?:_\{?\w{1,9}\}?)?\s*+=)")
QUOTIENT_RING = re.compile(r"\(?\\mathbb\s*+\{?\s*+Z\s*+\}?\s*+/\s*+\{?\s*+(\d{1,9})\s*+\\mathbb\s*+\{?\s*+Z\s*+\}?\s*+\}?\)?")
SCRIPT = r"(\{[^{}]{1,80}\}|\\[a-zA-Z]+|[0-9A-Za-z])"
POWER_FIRST = re.compile(rf"\^\s*+{SCRIPT}\s*+_\s*+{SCRIPT}")
ARRAY = re.compile(r"(?:\\left\s*+|(?<!\s)\s++)?\\\{\s*+\\begin\s*+\{array\}\s*+(?:\{[^{}]*+\})?((?:(?!\\begin\b).)*?)"
    r"\\end\s*+\{array\}\s*+\\right\s*+\.?", re.S)
PROSE = re.compile(r"[A-Za-z]{2,}")
OVERLINED = re.compile("((?:\\d[\u0305\u0304])+)")
DOTTED = re.compile("(\\d)\u0307")
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

# reading/lexer.py
AFTER_PRODUCT = re.compile(r"(?:(?<!\s)\s++)?(?:[-+=^*/_)}]|\\cdot|$)")
VOWEL = re.compile(r"[aeiouyAEIOUY]")
FUNCTION_HEAD = re.compile("(" + "|".join(sorted(FUNCTIONS - {"st"}, key=len, reverse=True)) + "|pi)")
# `1{,}234`, `1\\,234` and `1 234` in threes, or in twos before the last three (lakhs and crores). Before a stroke the gap may be
# that of a mixed number; an exponent, an index or a bare radicand ends at it. Plain commas where they part no coordinates.
GAP = r"(?:\{,\}|\\text\{,\}|,\\!\s*|\\,|\\;|\\:|\\ |~| )"
PLAIN_COMMAS = r"(?:\d{1,3}(?:,\d{3})+|\d{1,2}(?:,\d\d)+,\d{3})(?!\d)(?!,\d)"
PLAIN_THOUSANDS = re.compile(rf"(?<![\d.,]){PLAIN_COMMAS}")
GROUPED = (rf"(?<![\d.,^_])(?<!\\sqrt)(?:\d{{1,3}}(?:{GAP}\d{{3}})+"
    r"|(?<![!}])\d{1,2}(?:(?:\{,\}|,\\!)\d\d(?!\d))++(?:\{,\}|,\\!)\d{3})(?!\d)(?!\s*/)"
    r"|(?<![\d.,'])\d{1,3}(?:'\d{3})+(?!\d)")
# `1.234,5` and `1.234.567`; one point by itself stays a decimal point
CONTINENTAL = r"(?<![\d.,])\d{1,3}(?:(?:\.\d{3})+,\d+|(?:\.\d{3}){2,})(?![\d,.])"
MARKS = re.compile(rf"{GAP}|[,']")
POWER_OF_TEN = re.compile(r"(?:(?<!\s)\s++)?10\s*+\^")
TOKENS = (r"(?P<space>(?:\s|~|\\[,;:!>\ ]|\\(?:quad|qquad|thinspace|enspace|hfill|displaystyle|textstyle|limits|nolimits|big|Big|bigg|Bigg|bigl|bigr|Bigl|Bigr|biggl|biggr|Biggl|Biggr|noindent|centering|tiny|small|normalsize|large|Large|LARGE|huge|Huge|bfseries|itshape|sffamily|scriptscriptstyle|scriptstyle|rm|bf|it|strut|allowbreak|null|relax|mathstrut)(?![a-zA-Z]))++)"
    r"|(?P<side>\\(?:left|right|middle)(?![a-zA-Z])\s*\.?)"
    r"|(?P<env>\\(?P<which>begin|end)\s*\{\s*(?P<envname>[a-zA-Z]+)\*?\s*\})" r"|(?P<cmd>\\[a-zA-Z]+)" r"|(?P<esc>\\.)"
    r"|(?P<group>(?:%s"
    rf"{GROUPED}|(?P<continental>{CONTINENTAL})|(?P<comma>\d++\{{,\}}\d++))(?:\.\d*+)?+(?:[eE][+-]?\d++(?![.\d]))?)"
    r"|(?P<num>\d++\.?\d*+(?:[eE][+-]?\d++(?![.\d]))?|\.\d+(?:[eE][+-]?\d+)?)"
    r"|(?P<half>[apAP]\.?\s?[mM](?![A-Za-z])\.?)" r"|(?P<word>[A-Za-z]+)" r"|(?P<foreign>[^\W\d_]+)"
    r"|(?P<op>\{[:=]\}|<=|>=|!=|==|\*\*|=>|->|\.\.\.+|-{2,20}>|.)")
# tokens where plain commas mark thousands, and where they part items
LEX = re.compile(TOKENS.replace("%s", rf"(?<![\d.,]){PLAIN_COMMAS}|"), re.DOTALL)
LEX_PARTED = re.compile(TOKENS.replace("%s", ""), re.DOTALL)
LEXER_WORD = re.compile(r"[A-Za-z]+")
# what was printed as JSON or as a Python string has each backslash twice; `\\` is a line break in environments only
ESCAPED = re.compile(r"\\\\(d?frac|pi|sqrt|left|right|text|cdot|times|infty|circ|pm|le|ge|ldots|cup|in)(?![a-zA-Z])")
TEN = re.compile(r"\s?\{?([+-]?)(\d{1,4})\}?(?![\d.])")
SHORT_ARGUMENT = re.compile(r"\\[a-zA-Z]+|\d+|.", re.DOTALL)
NEGATED = re.compile(r"(?:(?<!\s)\s++)?(?:=|\\(?:in|subset|equiv|eq)\b)")
ROW_SPACE = re.compile(r"(?:(?<!\s)\s++)?\[\s*+-?[\d.]+\s*+[a-z]{2}\s*+\]")
COLUMNS = re.compile(r"(?:(?<!\s)\s++)?(?:\[[a-z]\]\s*+)?\{[^{}]*\}")
BASED = re.compile(r"\A\(?\s*+(?:\\(?:text|mathrm|mbox|texttt)\s*+\{)?\s*+([0-9A-Za-z]++(?:\.[0-9A-Za-z]++)?)\s*+\}?\s*+\)?\s*+_\s*+(?:\{\s*+)?\(?(?:\\(?:text|mathrm)\s*+\{)?\s*+(\d+|[a-z]+)\s*+\)?\}*")
UPRIGHT_DIGITS = re.compile(r"\\(?:text|mathrm|mathtt|texttt)\s*+\{\s*+([0-9A-Za-z.]+)\s*+\}")
PREFIXED = re.compile(r"0([box])([0-9A-Fa-f]{1,300})")

# reading/answers.py
STYLE = re.compile(r"^\\(?:display|text)style(?![a-zA-Z])\s*")
BRACED = re.compile(r"(\\(?:mathbf|boldsymbol)\s*)?\{")
MICRO = re.compile(r"\\mu(?:\s|\\[ ,;!])*+\\(?:text|mathrm)\s*+\{\s*+([msgLFCA])\s*+\}")
CONDITION = re.compile(r"(?:,\s*+)?\\text\s*+\{\s*+,?\s*+(?:for|where|when|with)\s*+\}(?=(?:\s|\\[ ,;])*+[a-z]\s*+(?:[<>=]|\\(?:[gl]eq?|in|ne)\b))")
EXCEPT = re.compile(r"^\\text\s*+\{\s*+all\s++reals?(?:\s++numbers?)?(?:\s++x)?\s++except(?:\s++for)?\s*+(?:x\s*+=\s*+)?\}(?:\s|\\[ ,;])*+(?:x\s*+=\s*+)?(-?[^{}\\]+|-?\\d?frac\{\d+\}\{\d+\})$", re.I)
IN_WORDS = re.compile(r"^(?:\\text\s*+\{)?\s*+(\d{1,15})(?:\s|\\[ ,])*+(?:\\text\s*+\{)?\s*+\(\s*+([a-zA-Z]++(?:[ -]++[a-zA-Z]++){0,20}+)\s*+\)\s*+\}?$")
UNIT_NAME = r"\{\s*+\\(?:text|mathrm|mbox)\s*+\{\s*+([a-zA-Z]++(?: ++[a-zA-Z]++)*+)\s*+\}\s*+(?:\^\s*+\{?\s*+(\d)\s*+\}?)?\s*+\}"
UNIT_FRACTION = re.compile(rf"\\[dt]?frac\s*+{UNIT_NAME}\s*+{UNIT_NAME}")
OHMS = re.compile(r"(?<=[\d}])(?:\s|~|\\[ ,;])*+(?:\\(?:mathrm|text)\s*+\{\s*+)?\\Omega\s*+\}?$")
CELSIUS = re.compile(r"\{\s*+\}\s*+\^\s*+\{?\s*+\\circ\s*+\}?(?:\s|~|\\[ ,;])*+\\(?:mathrm|text)\s*+\{\s*+C\s*+\}")
MONEY = re.compile(r"^(-?)(?:\\(?:text|mathrm)\s*+\{)?\s*+(US\s*+\\?\$|USD|Rs\.?|INR|EUR|GBP)\s*+\}?(?:\s|~|\\[ ,])*+(-?\d[\d.,{}\\!]*)$")
SENTENCE = re.compile(r"^\\(?:text|mbox|textbf|mathrm)\s*+\{\s*+(it|there|the(?:\s++[a-z-]+){1,8}?)\s++(?:is|are|equals|was)\s*+:?\s*+"
    r"(?:(\})(?:(?:\s|~|\\[ ,;]|\$)*+(?=[-\d(\[]|\\(?:d?frac|sqrt|pi|left|\$|\{))|(?:\s|~|\\[ ,;])*+(?=\$))|(?=-?[\d$]))", re.I)
KIND_WORD = re.compile(r"^\\(?:text|mbox|textbf|mathrm)\s*+\{\s*+(?:the\s++)?(?:ordered\s++|open\s++|closed\s++)?(?:points?|pairs?|triples?|interval|set|vector|vertex|cent(?:er|re)|focus|coordinates|matrix)"
    r"\s*+(?:is|are)?\s*+:?\s*+\}(?:\s|~|\\[ ,;])*+(?=[(\[]|\\(?:left|\{|begin|langle))", re.I)
WORD_SENTENCE = re.compile(r"^(\\(?:text|mbox|textbf|mathrm)\s*+\{\s*+|)(?:it\s++is|it'?s)\s++(?=[A-Za-z]+\s*+[.}]*$)(?!not\b)", re.I)
STATED = re.compile(r"^(?:\\(?:text|mbox|textbf)\s*+\{\s*+)?(?:the\s++)?(?:final\s++|correct\s++)?answer\s++is\s*+:?\s*+\}?\s*+(?=[\d$\\({-])", re.I)
ARROW = re.compile(r"^\s*+\\(?:(?:Rightarrow|implies|therefore|Longrightarrow)(?![a-zA-Z])|text\s*+\{\s*+(?:therefore|thus|so|hence)\s*+,?\s*+\})\s*+", re.I)
DECORATION = re.compile(r"(?<=[\w})$])(?<!quad)(?:\s|\\q?quad|\\[ ,;])*+\\(?:checkmark|blacksquare|qed|square|Box|blacktriangle)\s*+$")
PRIMES = re.compile(r"\^\s*(?:\{\s*)?((?:\\prime(?![a-zA-Z])\s*){1,4})\}?")
DOLLAR_MACRO = re.compile(r"\\(?:text|math)?dollar(?![a-zA-Z])\s*")
BRACKETED_UNIT = re.compile(r"(?<=[\d}])(?:\s|\\[ ,;])*+(?:\\(?:text|mathrm)\s*+\{\s*+\(\s*+([a-z]{2}[a-z ]*+)\s*+\)\s*+\}|\(\s*+\\(?:text|mathrm)\s*+\{\s*+([a-z]{2}[a-z ]*+)\s*+\}\s*+\))$")
REASON = re.compile(r"(?:\\text\s*+\{\s*+[,(]?\s*+|\s\(?)(?:since|because)\b")
WRAPPED = re.compile(r"\A(\(+)([^()]*)(\)+)")
MACRO = re.compile(r"\\(?:text|mbox|textrm|mathrm|textbf|textit|mathbf|operatorname|textsf|emph|underline|boldsymbol)\s*\{")
ASIDE = re.compile(r"(?:\\text\s*+\{\s*+|(?<!\s)\s++)?\(\s*+(?:\\text\s*+\{)?\s*+(?:approximately|approx\.?|about|roughly|or about|which is about|i\.?e\.?,?|that is,?|in simplest form|simplified|exact value|exactly)\b[^()]*\)\s*+\}?\s*+$", re.I)
PLAIN = re.compile(r"\A\s*+(?P<sign>-?)(?:(?P<whole>[0-9]{1,15})(?:\.(?P<digits>[0-9]{1,15}))?"
    r"|\\[dt]?frac\{(?P<top>[0-9]{1,15})\}\{(?P<bottom>[0-9]{1,15})\})\s*")

# reading/forms.py
LEAD = r"(?:(?:all|any|every|the)\s+)?(?:real\s+)?(?:numbers?\s+|values?\s+)?(?:that\s+are\s+|which\s+are\s+)?(?:strictly\s+)?"
FORM_COMPARED = re.compile(LEAD
    + r"(?:(?P<over>(?:greater|more|larger|bigger|higher) than|above|exceeding)|(?P<under>(?:less|smaller|fewer|lower) than|below)"
    r"|(?P<least>at least|no less than|not less than|no fewer than|no smaller than)"
    r"|(?P<most>at most|no more than|not more than|no greater than|not greater than))(?P<equal> or equal to)?")
SIGNED = re.compile(r"(?:(?:strictly|always)\s+)?(?P<non>non\s*)?(?P<sign>positive|negative)")
WORDY = re.compile(r"\b(?:than|least|most|above|below|exceeding|between|positive|negative|nonpositive|nonnegative)\b", re.I)
BETWEEN_TWO = re.compile(LEAD + r"between")
DATE = re.compile(r"(?:on )?(?:the )?(?P<day>\d{1,2})(?:st|nd|rd|th)?(?: of)? (?P<month>[a-z]{3,9})\.?(?:,? (?P<year>\d{4}))?"
    r"|(?:on )?(?P<m>[a-z]{3,9})\.? (?:the )?(?P<d>\d{1,2})(?:st|nd|rd|th)?(?:,? (?P<y>\d{4}))?"
    r"|(?P<iso>\d{4})-(?P<number>\d\d)-(?P<last>\d\d)")
CHANCE = re.compile(r"(?:an? )?(\d{1,9}) (?:chances? )?(?:in|out of) (?:an? )?(\d{1,9})(?: chance)?")
CAPITALS = re.compile(r"(?:\\(?:text|textbf|textit|mathrm|mathbf|mathit|mbox|operatorname|texttt|vec|overrightarrow)\s*\{\s*)?([A-Z]{2,200})\s*\}?")
PART_LABEL = re.compile(r"(?P<opened>\\(?:text|mathrm|textbf|mathbf)\s*\{[\s,;]*(?:and\s+)?)?(?:[Pp]art\s*)?"
    r"(?:(?P<open>\()\s*)?(?P<name>i{1,3}|iv|v|[a-h]|[1-8])\s*\)(?:\s*[:.=])?\s*(?(opened)(?P<closed>\})?)")
ONE_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
PARTING = re.compile(r"(?:\s|[,;.&]|\\q?quad|\\\\|\\[ ,;:!]|\band\b|\\text\s*+\{\s*+(?:and)?[\s,;]*+\})++")

# reading/units.py
PIECE = r"(\d{1,9}(?:\.\d{1,9})?)\s*+([A-Za-z]{1,12})\.?"
COMPOUND = re.compile(rf"{PIECE}\s*+(?:,|and)?\s*+{PIECE}(?:\s*+(?:,|and)?\s*+{PIECE})?")

# reading/words.py
# What `no solution` and `infinitely many solutions` begin with where they are a sentence.
EXISTENCE = re.compile(r"^(?:there (?:is|are|exist)|(?:(?:given )?(?:equation|system|inequality|problem)(?: of equation)?|it) has)(?= (?:no|infinite|infinitely) )")

# comparing/golds.py
GOLD_WORD = r"(?:(?:the\s++)?(?:correct\s++|right\s++)?(?:answer|option|choice)\s*+(?:is)?\s*+:?\s*+)?"
ALONE = re.compile(rf"\A{GOLD_WORD}[(\[]?\s*+([A-Ja-j])\s*+[)\].:]*", re.I)
WITH_TEXT = re.compile(rf"\A{GOLD_WORD}(?:[(\[]\s*+([A-J])\s*+[)\]]\s*+:?|([A-J])\s*+[).:])\s*+(\S.*)", re.S)
IS_RIGHT = re.compile(r"\A[(\[]?\s*+([A-J])(?:\s*+[)\]])?\s++is\s++(?:the\s++)?(?:correct|right)(?:\s++(?:answer|option|choice))?\.?")
OTHER = re.compile(r"[(\[]\s*[A-J]\s*[)\]]|^\s*(?:or|and|,|/|;|&|to|-)\s*[(\[]?[A-J]\b|^[A-J][).:]|\bor\b|\b(?:not|wrong|incorrect)\b")
SEVERAL_LETTERS = re.compile(r"\A[(\[{]?\s*+[A-J]\s*+[)\]}]?(?:\s*+(?:,\s*+and|,|;|and|&)\s*+[(\[]?\s*+[A-J]\s*+[)\]}]?)+")
GOLD_OPTION = re.compile(r"\A\s*+(?:\\(?:textbf|mathbf|text|mathrm)\s*+\{\s*+)?\(\s*+([A-J])\s*+\)\s*+(\})?(?:\s|\\[ ,;:!]|~|\\q?quad|:)*+(?(2)|(?:(?<!\})\}(?=.))?)(?:\s|~|\\ )*+(\S.*)", re.S)
# A letter of a choice before its text, in prose; a capital that may be one.
LETTER_THEN_TEXT = re.compile(rf"\A(?i:{GOLD_WORD})(?:\(\s*+[A-J]\s*+\)(?:\s*+:)?|[A-J]\s*+[).:]|[A-J](?=\s++\([^()]{{1,200}}\)\.?\Z))\s++(\S.*)", re.S)
IN_BRACKETS = re.compile(r"\(([^(),]{1,200})\)\.?")
OPTION_ALONE = re.compile(r"[A-J](?![a-z])")
LETTER = re.compile(r"\A(?:\\(?:text|textbf|mathrm|mathbf|mbox)\s*+\{\s*+)?\\?\(?\s*+(?:\\(?:text|textbf|mathrm|mathbf)\s*+\{\s*+)?([A-J])\s*+\}?\s*+\\?\)?\s*+\}?\.?")
OPTION = re.compile("[A-J]")
GOLD_LETTERS = re.compile(r"[A-J](?:\s*+(?:,|and|;)?\s*+[A-J]){1,6}")
OTHER_OPTION = re.compile(r"\(\s*[A-J]\s*\)")
GOLD_INTEGER = re.compile(r"-?\d{1,15}")
GOLD_LABEL = re.compile(r"\A\s*+(?:\\text\s*+\{)?\s*+(?:the\s++)?(?:final\s++)?answer\s*+(?:is|:)\s*+\}?\s*+:?", re.I)
GOLD_SAID = re.compile(r"\A\s*+(?:so\s++|thus\s++|therefore,?\s++)?(it|the(?:\s++[A-Za-z-]+){1,8}?)\s++(?:is|are|equals|was)\s*+:?\s*+\$([^$]+)\$\.?\s*+", re.I)
FORMULA = re.compile(r"\$([^$]+)\$")

# comparing/match.py
DRESS = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox|textrm|emph)\s*\{|\\[ ,;:!]|\\q?quad|[{}$~]")
SIGN = re.compile(r"[+/<>=|^*_\\%\[\]≤≥]|(?<![A-Za-z])-|-(?![A-Za-z])|[(][^a-zA-Z(]*\d|\d\s*[):!]|\d:\d")
SUBJECT = re.compile(r"\A\s*+(?:it|(?:the|this)\s+(?!answer|opposite|converse|other|not|no)[a-z]+)\s+(?P<predicate>[a-z].*)", re.I)
CHEMICAL_DRESS = re.compile(r"\\(?:text|mathrm|mbox|ce|rm)(?![a-zA-Z])|[{}\s_$]")
CHEMICAL = re.compile(r"(?:[A-Z][a-z]?\d{0,3})++")
MATCH_INTEGER = re.compile(r"\A\s*+\$?\s*+([-+]?\d{1,15})\s*+\.?\s*+\$?\s*+")
DECIMAL_COMMA = re.compile(r"-?0,\d+")

# what is looked for at one place only
OR_WORD = re.compile(r"\bor\b")
UNTEXT = re.compile(r"\\text\b|[{}$()]")
THREE_LETTERS = re.compile(r"[A-Za-z]{3,}")
RUN_OF_OPTIONS = re.compile(r"\(?[A-J]{2,8}\)?")
BOLD_OPTION = re.compile(r"\A\s*+\\(?:textbf|mathbf|text|mathrm)\s*+\{\s*+\(?\s*+([A-J])\s*+\)?\s*+[.:]?\s*+\}(?:\s|\\[ ,;:!]|~|\\q?quad|:)++(\S.*)", re.S)
RUNS = re.compile(r"[^\W_]+")
VERDICT_FIRST = re.compile(r"(yes|no|true|false)\s*[,.;:]\s+\S")
SENTENCE_END = re.compile(r"(?<=[^.\s])\.(?=\s++[A-Z(]|\s*+$)|(?<!\s)\s++(?:because|since)\b")
JOINED_BEHIND = re.compile(r"\A\s*+(?:or\b|and\b|[,，、;；或和与及])", re.I)
SMALL_WORDS = re.compile(r"[a-z]+")
TEXT_LAYOUT = re.compile(r"\\(?:text|mbox|mathrm|textbf|mathbf|textit)\b|[{}\s.$]")
KIND_CALLED = re.compile("vert|focus|cent")
BLANKS = re.compile(r"\s+")
LAYOUT = re.compile(r"\\[,;:! ]|~|\\q?quad")
EXCLAIMED = re.compile(r"(?<=[A-Za-z]{3})!++$")
TIME_OF_DAY = re.compile(r"\d{1,2}:[0-5]\d(:[0-5]\d)?")
VERDICT_WITH_REASON = re.compile(r"\A\s*+(yes|no|true|false)\s*+[,.;:]\s*(.*)", re.I | re.S)
LIST_MARKS = re.compile(r"[,;&]|\band\b")
WORDS_AND_NUMBERS = re.compile(r"[^\W_]+(?:\.\d+)?")
ORDINAL_DIGIT = re.compile(r"(\d)(?:st|nd|rd|th)\b")
