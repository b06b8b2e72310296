"""The instructions of IFEval (arXiv:2311.07911) by their published names, judged as it judges them.

How this works: each row of `IFEVAL` is a function of the text and the row's own arguments (its entry of `kwargs`, without what is
None, and the prompt under `prompt`). It returns whether the text obeys, or None if this cannot be decided here. The
counting rules are those of the set, implemented anew: `words` are runs of word characters, `tokens` are what a Penn
Treebank tokenizer makes of a text, `sentences` end as Punkt ends them but for its learnt statistics. `language` goes by
script, letters and frequent words. All are linear in the text.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from grpo_verifiers.maths.reading.vocabulary import names

Given = Mapping[str, Any]
Check = Callable[[str, Given], bool | None]

_WORD = re.compile(r"\w+")
_TOKEN = re.compile(
    r"[^\s,;:@#$%&?!\"()\[\]{}<>“”`]+?(?=(?:n't|'(?:s|m|d|ll|re|ve))?(?:[,;:@#$%&?!\"()\[\]{}<>“”`\s]|$))|n't|'(?:s|m|d|ll|re|ve)|[,;:@#$%&?!\"()\[\]{}<>“”`]",
    re.I,
)
_ABBREVIATIONS = names(
    """
    mr mrs ms dr st jr sr prof gen sen rep gov lt sgt col capt rev hon inc corp co ltd llc vs etc e.g i.e eg ie cf al fig no vol
    jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun u.s u.k u.n d.c a.m p.m ph.d b.c a.d n.y mt ft ave
    """
)
_END = re.compile(r"(?<![.!?])[.!?]++[\"'”’)\]}*_]{0,4}(?=\s)")


def words(text: str) -> list[str]:
    """Runs of word characters."""
    return _WORD.findall(text)


def tokens(text: str) -> list[str]:
    """Words and marks, contractions cut in two (`DO N'T`), as a Penn Treebank tokenizer cuts them; a last full stop is a mark."""
    found = [token.rstrip(".") if "." not in token[:-1] else token for token in _TOKEN.findall(text)]
    return [token for token in found if token]


def sentences(text: str) -> list[str]:
    """Sentences: each ends at a final mark before white space. A full stop after an abbreviation or an initial does not
    end a sentence if small letters follow."""
    found, start = [], 0
    for end in _END.finditer(text):
        before = text[start : end.start()].rsplit(None, 1)[-1:] or [""]
        following = text[end.end() :].lstrip()[:1]
        last = before[0].lstrip("\"'“‘([{*_").lower()
        if end[0][0] == "." and (
            last in _ABBREVIATIONS
            or (len(last) == 1 and last.isalpha() and last != "i")
            or (last.isdigit() and following.islower())
            or (end[0].startswith("..") and not following.isupper())
        ):
            continue
        found.append(text[start : end.end()].strip())
        start = end.end()
    rest = text[start:].strip()
    return [*found, rest] if rest else found


# Languages by their scripts, by letters that only one of several has, and by frequent words.

_SCRIPTS = {
    "KANNADA": "kn", "TELUGU": "te", "TAMIL": "ta", "BENGALI": "bn", "GUJARATI": "gu", "GURMUKHI": "pa", "THAI": "th", "HANGUL": "ko",
    "HIRAGANA": "ja", "KATAKANA": "ja", "CJK": "zh-cn", "GREEK": "el", "HEBREW": "he", "MALAYALAM": "ml",
}  # fmt: skip
_FREQUENT = {
        "en": "the and of to in is that it you for with are this be as on your have was not will can from or but they we an if at by he she i",
        "de": "der die das und ist nicht ein eine zu den mit von im auf ich sie es für dass wir sich auch als wird oder",
        "fr": "le la les et est une des que dans pour vous qui pas sur avec nous ce il elle sont au du",
        "es": "el la los las de que y en un una es por con para se no su al del como más",
        "it": "il di che e la un una per è con non sono della gli le del si in come anche questo",
        "pt": "o a os as de que e em um uma é para com não se do da no na você por mais",
        "nl": "de het een en van ik je is dat niet in op te zijn voor met maar ook",
        "vi": "và là của có không được cho một những trong tôi với người này các để",
        "sw": "na ya wa kwa ni katika za la cha kuwa hii au yake kama watu",
        "fi": "ja on ei se että hän olen ovat kun mutta myös tai joka minun tämä oli",
        "sv": "och att det som en är av för på med den till inte jag", "pl": "i w na nie się z do że to jest jak ale po",
        "tr": "ve bir bu için ile da de çok ne olarak daha gibi",
}  # fmt: skip
_LETTERS = {
    "ARABIC": (("ٹڈڑےںھہ", "ur"), ("پچژگی", "fa"), ("", "ar")),
    "CYRILLIC": (("іїєґ", "uk"), ("ыэё", "ru"), ("ъщ", "bg"), ("", "ru")),
}
_DEVANAGARI = {"hi": "है में और नहीं लिए", "mr": "आहे आणि च्या मध्ये नाही", "ne": "छ हरू बाट गर्न पनि"}


def _frequent(text: str) -> tuple[dict[str, int], int]:
    """How many of the words are frequent ones of each language, and how many words there are."""
    said = Counter(re.findall(r"[^\s\d.,;:!?\"()*]+", text.lower()))
    return {code: sum(map(said.__getitem__, listed.split())) for code, listed in _FREQUENT.items()}, said.total()


@lru_cache(maxsize=4_096)
def language(text: str) -> str | None:
    """The code of a text's language as IFEval writes it, None where the text is too short or too mixed to tell."""
    letters = [char for char in text if char.isalpha()]
    scripts = Counter(unicodedata.name(char, "?").split(" ", 1)[0] for char in letters[:2_000])
    if scripts["HIRAGANA"] + scripts["KATAKANA"] > 0.05 * scripts.total():
        return "ja"
    script = scripts.most_common(1)[0][0] if scripts else ""
    if script in _SCRIPTS:
        return _SCRIPTS[script]
    if script in _LETTERS:
        counts = Counter(text.lower())
        least = 0.004 * len(letters)
        return next(code for own, code in _LETTERS[script] if not own or sum(counts[char] for char in own) > least)
    if script == "DEVANAGARI":
        hits = {code: sum(map(text.count, listed.split())) for code, listed in _DEVANAGARI.items()}
        said = 1
    elif script == "LATIN":
        hits, said = _frequent(text)
    else:
        return None
    first, second = sorted(hits, key=hits.__getitem__, reverse=True)[:2]
    return first if hits[first] > max(0.06 * said, 1.2 * hits[second]) else None


def _is_language(text: str, code: str) -> bool | None:
    found = language(text)
    if found is None:
        # text in Latin letters is in none of the languages with other scripts
        return None if code in _FREQUENT or not text.isascii() else False
    return found == code or (code == "zh" and found == "zh-cn")


# Arguments, bounds and parts that several kinds share.


def _at_bound(count: int, bound: int, relation: str | None) -> bool:
    return count < bound if relation == "less than" else count >= bound


def finds(pattern: str, text: str) -> int:
    return len(re.findall(rf"{pattern}", text, re.I))


def _parts(text: str, divider: str) -> list[str] | None:
    """The parts between dividers; none if an inner part is empty. An empty first or last part does not count."""
    parts = [part.strip() for part in text.split(divider)]
    parts = parts[not parts[0] : len(parts) - (not parts[-1])]
    return parts if all(parts) else None


def _bullets(text: str) -> int:
    lines = [line.lstrip() for line in text.split("\n")]
    return sum(line[:1] == "-" or (line[:1] == "*" and line[1:2] != "*") for line in lines)


def _has_title(text: str, given: Given) -> bool:
    lines = [(line, line.find("<<"), line.rfind(">>")) for line in text.split("\n")]
    return any(0 <= start < end and line[start:end].strip("<> \t") for line, start, end in lines)


def _highlights(text: str) -> int:
    single, double = re.findall(r"\*[^\n*]*\*", text), re.findall(r"\*\*[^\n*]*\*\*", text)
    return sum(bool(part.strip("* \t")) for part in (*single, *double))


def _first_word(text: str, given: Given) -> bool:
    """Blocks between two line breaks; an empty one is none, where IFEval numbers it. A word ends at a mark."""
    blocks = [block for block in text.split("\n\n") if block.strip()]
    at = int(given["nth_paragraph"])
    said = blocks[at - 1].split() if at <= len(blocks) else []
    first = re.split(r"[.,?!'\"]", said[0].lstrip("'").lstrip('"'))[0] if said else ""
    return len(blocks) == int(given["num_paragraphs"]) and first.lower() == str(given["first_word"]).lower()


def _postscript(text: str, given: Given) -> bool:
    mark = str(given.get("postscript_marker") or "P.S.").strip()
    known = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
    return re.search(rf"{known.get(mark, re.escape(mark))}", text, re.I) is not None


def _is_json(text: str, given: Given) -> bool:
    inner = re.sub(r"\A```(?:json)?", "", text.strip(), flags=re.I).removesuffix("```").strip()
    try:
        json.loads(inner)
    except (ValueError, RecursionError):
        return False
    return True


def _repeats(text: str, given: Given) -> bool:
    wanted = str(given.get("prompt_to_repeat") or given["prompt"])
    return text.strip().lower().startswith(wanted.strip().lower())


def _english(text: str, is_cased: bool) -> bool:
    """English, or too short to tell and in plain letters: a name, one word."""
    if not is_cased:
        return False
    hits, _ = _frequent(text)
    return (language(text) or ("en" if text.isascii() and hits["en"] == max(hits.values()) else "")) == "en"


def _capital_words(text: str, given: Given) -> bool:
    count = sum(token.isupper() for token in tokens(text))
    return _at_bound(count, int(given["capital_frequency"]), given.get("capital_relation"))


IFEVAL: dict[str, Check] = {
    "keywords:existence": lambda text, given: all(finds(re.escape(word), text) for word in given["keywords"]),
    "keywords:forbidden_words": lambda text, given: (
        not any(finds(rf"\b{re.escape(word)}\b", text) for word in given["forbidden_words"])
    ),
    "keywords:frequency": lambda text, given: _at_bound(
        finds(re.escape(given["keyword"].strip()), text), int(given["frequency"]), given.get("relation")
    ),
    "keywords:letter_frequency": lambda text, given: _at_bound(
        text.lower().count(given["letter"].strip().lower()), int(given["let_frequency"]), given.get("let_relation")
    ),
    "language:response_language": lambda text, given: _is_language(text, given["language"]),
    "length_constraints:number_words": lambda text, given: _at_bound(
        len(words(text)), int(given["num_words"]), given.get("relation")
    ),
    "length_constraints:number_sentences": lambda text, given: _at_bound(
        len(sentences(text)), int(given["num_sentences"]), given.get("relation")
    ),
    "length_constraints:number_paragraphs": lambda text, given: (
        len(_parts(text, "***") or ()) == int(given["num_paragraphs"])
    ),
    "length_constraints:nth_paragraph_first_word": _first_word,
    "detectable_content:number_placeholders": lambda text, given: (
        len(re.findall(r"\[[^\[\]\n]*\]", text)) >= int(given["num_placeholders"])
    ),
    "detectable_content:postscript": _postscript,
    "detectable_format:number_bullet_lists": lambda text, given: _bullets(text) == int(given["num_bullets"]),
    # IFEval accepts two of them, too; here that is a hedge
    "detectable_format:constrained_response": lambda text, given: (
        sum(f"My answer is {said}." in text for said in ("yes", "no", "maybe")) == 1
    ),
    "detectable_format:number_highlighted_sections": lambda text, given: (
        _highlights(text) >= int(given["num_highlights"])
    ),
    "detectable_format:multiple_sections": lambda text, given: (
        len(re.findall(rf"{re.escape(given['section_spliter'].strip())}\s?\d", text)) >= int(given["num_sections"])
    ),
    "detectable_format:json_format": _is_json,
    "detectable_format:title": _has_title,
    "combination:two_responses": lambda text, given: len(set(parts := _parts(text, "******") or [])) == len(parts) == 2,
    "combination:repeat_prompt": _repeats,
    "startend:end_checker": lambda text, given: (
        text.strip().strip('"').lower().endswith(given["end_phrase"].strip().lower())
    ),
    "startend:quotation": lambda text, given: re.fullmatch(r'(?s)".*"', text.strip()) is not None,
    "change_case:capital_word_frequency": _capital_words,
    "change_case:english_capital": lambda text, given: _english(text, text.isupper()),
    "change_case:english_lowercase": lambda text, given: _english(text, text.islower()),
    "punctuation:no_comma": lambda text, given: "," not in text,
}
"""IFEval's kinds."""
