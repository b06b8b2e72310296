"""The instructions of IFEval (arXiv:2311.07911) and IFBench (arXiv:2507.02833) by their published names, judged as those sets judge them.

How this works: each row of `PUBLISHED` is a function of the text and the row's own arguments (its entry of `kwargs`, without what is
None, and the prompt under `prompt`). It returns whether the text obeys, or None where nothing here can decide: words are tagged by no
part of speech, syllables are not counted. Rules of counting are those of the two sets, written anew: `words` are runs of word
characters, `tokens` are what a Penn Treebank tokenizer makes of a text, `sentences` end as Punkt ends them but for its learnt
statistics. `language` goes by script, letters and frequent words. All are linear in the text.
"""

from __future__ import annotations

import csv
import io
import json
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

from grpo_verifiers.maths.reading.vocabulary import names

Given = Mapping[str, Any]
Check = Callable[[str, Given], bool | None]

_WORD = re.compile(r"\w+")
_MARKS = string.punctuation + " "
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
_END = re.compile(r"[.!?]++[\"'”’)\]}*_]{0,4}(?=\s)")


def words(text: str) -> list[str]:
    """Runs of word characters."""
    return _WORD.findall(text)


def tokens(text: str) -> list[str]:
    """Words and marks, contractions cut in two (`DO N'T`), as a Penn Treebank tokenizer cuts them; a last full stop is a mark."""
    found = [token.rstrip(".") if "." not in token[:-1] else token for token in _TOKEN.findall(text)]
    return [token for token in found if token]


def sentences(text: str) -> list[str]:
    """Stretches up to a mark of the end before white space; a stop behind an abbreviation or an initial ends nothing before small letters."""
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
        # what is written in Latin letters is none of the languages of other scripts
        return None if code in _FREQUENT or not text.isascii() else False
    return found == code or (code == "zh" and found == "zh-cn")


# Arguments, bounds and parts that several kinds share.


def _at_bound(count: int, bound: int, relation: str | None) -> bool:
    return count < bound if relation == "less than" else count >= bound


def _finds(pattern: str, text: str) -> int:
    return len(re.findall(pattern, text, re.I))


def _parts(text: str, divider: str) -> list[str] | None:
    """What stands between dividers, none where a part inside is empty; an empty first or last one is no part."""
    parts = [part.strip() for part in text.split(divider)]
    parts = parts[not parts[0] : len(parts) - (not parts[-1])]
    return parts if all(parts) else None


def _bullets(text: str) -> int:
    lines = [line.lstrip() for line in text.split("\n")]
    return sum(line[:1] == "-" or (line[:1] == "*" and line[1:2] != "*") for line in lines)


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
    return re.search(known.get(mark, re.escape(mark)), text, re.I) is not None


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
    "keywords:existence": lambda text, given: all(_finds(re.escape(word), text) for word in given["keywords"]),
    "keywords:forbidden_words": lambda text, given: (
        not any(_finds(rf"\b{re.escape(word)}\b", text) for word in given["forbidden_words"])
    ),
    "keywords:frequency": lambda text, given: _at_bound(
        _finds(re.escape(given["keyword"].strip()), text), int(given["frequency"]), given.get("relation")
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
        len(re.findall(r"\[[^\]\n]*\]", text)) >= int(given["num_placeholders"])
    ),
    "detectable_content:postscript": _postscript,
    "detectable_format:number_bullet_lists": lambda text, given: _bullets(text) == int(given["num_bullets"]),
    # IFEval takes two of them as well: a hedge
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
    "detectable_format:title": lambda text, given: any(
        title.strip("<> \t") for title in re.findall(r"<<[^\n]+>>", text)
    ),
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

_STOP_WORDS = names(
    """
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it its itself they
    them their theirs themselves what which who whom this that these those am is are was were be been being have has had having do
    does did doing a an the and but if or because as until while of at by for with about against between into through during before
    after above below to from up down in out on off over under again further then once here there when where why how all any both each
    few more most other some such no nor not only own same so than too very s t can will just don should now d ll m o re ve y ain aren
    couldn didn doesn hadn hasn haven isn ma mightn mustn needn shan shouldn wasn weren won wouldn
    """
)
_PRONOUNS = names(
    """
    i me we us you he him she her it they them my mine our ours your yours his hers its their theirs myself ourselves yourself
    yourselves himself herself itself themselves this that these those who whom whose which what whoever whomever whatever whichever
    anybody anyone anything everybody everyone everything nobody nothing somebody someone something each either neither both all some
    any none
    """
)
_PEOPLE = names(
    """
    Emma Liam Sophia Jackson Olivia Noah Ava Lucas Isabella Mason Mia Ethan Charlotte Alexander Amelia Benjamin Harper Leo Zoe Daniel
    Chloe Samuel Lily Matthew Grace Owen Abigail Gabriel Ella Jacob Scarlett Nathan Victoria Elijah Layla Nicholas Audrey David Hannah
    Christopher Penelope Thomas Nora Andrew Aria Joseph Claire Ryan Stella Jonathan
    """
)
_CAPITALS = (
    "Reykjavik Helsinki Oslo Tallinn Stockholm Riga Moscow Copenhagen Vilnius Minsk Dublin Berlin Amsterdam Warsaw London Brussels Prague "
    "Luxembourg Paris Vienna Bratislava Budapest Vaduz Chisinau Bern Ljubljana Zagreb"
)
_PRIMES = frozenset(n for n in range(2, 100) if all(n % d for d in range(2, n)))
_NO_MARKS = str.maketrans("", "", string.punctuation)


def _bare(text: str) -> list[str]:
    """Words parted by white space, without ASCII punctuation."""
    return text.translate(_NO_MARKS).split()


def _ascii(text: str) -> str:
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


def _ends(text: str) -> Counter[str]:
    return Counter(sentence[-1] for sentence in sentences(text))


def _alternates(letters: Iterable[str]) -> bool:
    return all(a != b for a, b in pairwise(letters))


def _overlap(text: str, given: Given) -> bool:
    ours, theirs = ({one[i : i + 3] for i in range(len(one) - 2)} for one in (text, given["reference_text"]))
    return bool(ours) and abs(100 * len(ours & theirs) / len(ours) - given["percentage"]) <= 2


def _alphabet(text: str, given: Given) -> bool:
    firsts = [word[0].lower() for word in _bare(text)]
    letters = string.ascii_lowercase
    return (
        bool(firsts)
        and all(char in letters for char in firsts)
        and all((letters.index(b) - letters.index(a)) % 26 == 1 for a, b in pairwise(firsts))
    )


def _alliteration(text: str, given: Given) -> bool:
    most = -1
    for sentence in sentences(text):
        firsts = [word[0] for word in (raw.lstrip(_MARKS) for raw in sentence.lower().split()) if word]
        same = [a == b for a, b in pairwise(firsts)]
        # a run of n words that begin alike counts n
        count = sum(same) + sum(now and not before for before, now in pairwise([False, *same]))
        if count <= most:
            return False
        most = count
    return True


def _punctuation(text: str, given: Given) -> bool:
    if not any(mark in text for mark in ("!?", "?!", "‽")):
        return False
    rest = text.replace("?!", "", 1)
    rest = text.replace("!?", "", 1) if rest == text else rest
    return set(".,!?;:") <= set(rest)


def _nested(text: str, given: Given) -> bool:
    """A group of brackets five deep, closed in its order."""
    opened, deepest = [], 0
    for char in text:
        if char in "([{":
            opened.append(char)
            deepest = max(deepest, len(opened))
        elif char in ")]}":
            if not opened or opened.pop() != "([{"[")]}".index(char)]:
                opened, deepest = [], 0
            elif deepest >= 5:
                return True
    return False


def _quotes(text: str, given: Given) -> bool:
    opened: list[str] = []
    deepest = 0
    for char in text:
        if opened and char == opened[-1]:
            opened.pop()
            if deepest - len(opened) >= 3:
                return True
        elif char in "\"'":
            opened.append(char)
            deepest = max(deepest, len(opened))
    return False


def _option(text: str, given: Given) -> bool:
    listed = given["options"]
    options = [one.strip() for one in listed.split("/" if "/" in listed else "or" if "or" in listed else ",")]
    if re.match(r"\W*a\W*b\W*c\W*", listed, re.I):
        return text in options
    return text.strip(_MARKS).lower() in {option.strip(_MARKS).lower() for option in options}


def _is_emoji(char: str) -> bool:
    return unicodedata.category(char) == "So" and ord(char) > 0x203B


def _emojis(text: str, given: Given) -> bool:
    said = [sentence.translate(_NO_MARKS).strip() for sentence in sentences(text)]
    if not all(said):
        return False
    # an emoji behind the mark of the end stands before the next sentence
    following = [*(one[0] for one in said[1:]), ""]
    return all(
        any(map(_is_emoji, one[-2:])) or (bool(after) and _is_emoji(after))
        for one, after in zip(said, following, strict=True)
    )


def _japanese(text: str, given: Given) -> bool:
    every = [word.strip(_MARKS) for word in text.split()][given["N"] - 1 :: given["N"]]
    return all(not word or word.isdigit() or re.search(r"[\u3040-\u30ff\u4e00-\u9fff]", word) for word in every)


def _keyword_in_sentence(text: str, given: Given) -> bool:
    found = sentences(text)[given["N"] - 1 : given["N"]]
    return bool(found) and _finds(rf"\b{re.escape(given['word'])}\b", found[0]) > 0


def _last_is_first(text: str, given: Given) -> bool:
    said = [[word.strip(_MARKS).lower() for word in one.strip(_MARKS).split()] for one in sentences(text)]
    return all(a and b and a[-1] == b[0] for a, b in pairwise(said))


def _paragraph_words(text: str, given: Given) -> bool:
    said = [line.strip().lower().strip(_MARKS).split() for line in text.split("\n")]
    return all(one[0] == one[-1] for one in said if one)


def _increments(text: str, given: Given) -> bool:
    counts = [len(_bare(sentence)) for sentence in sentences(text)]
    return all(b == a + given["small_n"] for a, b in pairwise(counts))


def _stairs(text: str, given: Given) -> bool:
    indents = [len(line) - len(line.lstrip(" ")) for line in text.split("\n") if line.strip()]
    return all(a < b for a, b in pairwise(indents))


def _explained(text: str, given: Given) -> bool:
    joined = "".join(re.sub("[“”]", '"', text).replace("'\"'", "").split())
    return '""' not in joined and not joined.strip(string.digits + string.punctuation.replace('"', "")).endswith('"')


def _thesis(text: str, given: Given) -> bool:
    found = re.search(r"(?s)<(?:i|em)>(.*?)</(?:i|em)>(.*)", text)
    return found is not None and bool(found[1].strip()) and bool(found[2].strip())


def _text_then_bullets(text: str, given: Given) -> bool:
    said = bullets = 0
    for line in text.split("\n"):
        if line.strip().startswith("*"):
            bullets += 1
            if said < 2:
                return False
        elif bullets:
            return False
        else:
            said += len(sentences(line))
    return bullets >= 2


def _questions(text: str, given: Given) -> bool:
    if not text.startswith("Question"):
        return False
    asked = [part.strip() for part in re.split(r"Question \d+[.|):;]?\s*", text) if part.strip()]
    lengths = []
    for part in asked:
        is_option = [re.match(r"[A-Ea-e][.|)]\s*\w", line.strip()) is not None for line in part.split("\n")]
        if sum(is_option) != 5:
            return False
        lengths.append(len(" ".join(line.strip() for line in part.split("\n")[: is_option.index(True)])))
    return len(lengths) == 4 and all(a < b for a, b in pairwise(lengths))


def _countries(text: str, given: Given) -> bool:
    lines = [line.strip(_MARKS) for line in text.split("\n") if line.strip(_MARKS)]
    start = next((i for i, line in enumerate(lines) if "Zimbabwe" in line), len(lines))
    listed = [_ascii(line) for line in lines[start:]]
    return len(listed) >= 52 and listed == sorted(listed, reverse=True)


def _alphabet_story(text: str, given: Given) -> bool:
    return "".join(one[:1].lower() for one in sentences(text)) == string.ascii_lowercase


def _table(text: str, columns: str, rows: int, mark: str, quoted: str) -> bool:
    """A table with these columns and so many rows; `quoted`: whether `one` field with a special character, or `all`, is in quotes."""
    head = [part.strip().strip('"') for part in text.split("\n", 1)[0].split(mark)]
    data = list(csv.reader(io.StringIO(text.replace('"', '"""') if quoted else text), delimiter=mark))
    if head != columns.split() or len(data) != rows + 1 or any(len(row) != len(head) for row in data[1:]):
        return False
    fields = [field.strip() for row in data for field in row]
    if quoted == "all":
        return all(len(field) > 0 and field[0] == field[-1] == '"' for field in fields)
    return not quoted or any(re.match(r'".*[^\d\w\s].*"', field) for field in fields[len(head) :])


def _dates(text: str, given: Given) -> bool:
    for date in text.strip().split(","):
        found = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)", date.strip())
        if found is None:
            return False
        year, month, day = map(int, found.groups())
        most = 29 if month == 2 else 30 if month in (4, 6, 9, 11) else 31
        if not 1769 <= year <= 1821 or month > 12 or day > most:
            return False
    return True


def _at_place(text: str, given: Given) -> bool:
    found = sentences(text)[given["n"] - 1 : given["n"]]
    said = [token for token in tokens(found[0]) if any(map(str.isalnum, token))] if found else []
    return len(said) >= given["m"] and said[given["m"] - 1].lower() == given["keyword"].strip().lower()


def _second_words(text: str, given: Given) -> bool:
    said = [token.lower() for token in re.findall(r"[\w'’-]+|[^\w\s]", text)]
    last = -3 if said and said[-1] in string.punctuation else -2
    return len(said) >= -last and said[1:2] == said[last : last + 1] == [given["keyword"].strip().lower()]


def _title_case(text: str, given: Given) -> bool:
    said = [token for token in tokens(text) if token[0].isalpha()]
    return not any(
        token[0].islower() and (len(token) == 1 or token[1:].islower() or token[1:].isupper()) for token in said
    )


IFBENCH: dict[str, Check] = {
    "count:word_count_range": lambda text, given: given["min_words"] <= len(words(text)) <= given["max_words"],
    "count:unique_word_count": lambda text, given: (
        len({word.strip(_MARKS) for word in text.lower().split()}) >= given["N"]
    ),
    "count:conjunctions": lambda text, given: (
        len({word for word in text.split() if word.strip(_MARKS).lower() in names("and but for nor or so yet")})
        >= given["small_n"]
    ),
    "count:person_names": lambda text, given: (
        sum(re.search(rf"\b{name}\b", text) is not None for name in _PEOPLE) >= given["N"]
    ),
    "count:numbers": lambda text, given: len(re.findall(r"\d+", text.translate(_NO_MARKS))) == given["N"],
    "count:punctuation": _punctuation,
    "count:words_japanese": _japanese,
    "count:pronouns": lambda text, given: (
        sum(token in _PRONOUNS for token in tokens(text.lower().replace("/", " "))) >= given["N"]
    ),
    "count:keywords_multiple": lambda text, given: all(
        text.lower().count(given[f"keyword{i}"].strip().lower()) == n for i, n in enumerate((1, 2, 3, 5, 7), 1)
    ),
    "ratio:stop_words": lambda text, given: (
        bool(said := words(text))
        and 100 * sum(word.lower() in _STOP_WORDS for word in said) <= given["percentage"] * len(said)
    ),
    "ratio:sentence_type": lambda text, given: (ends := _ends(text))["."] == 2 * ends["?"],
    "ratio:sentence_balance": lambda text, given: (ends := _ends(text))["."] == ends["?"] == ends["!"],
    "ratio:overlap": _overlap,
    "ratio:sentence_words": lambda text, given: (
        len(said := sentences(text)) == 3 and len({len(sentence) for sentence in said}) == 1
    ),
    "words:alphabet": _alphabet,
    "words:vowel": lambda text, given: "\n" not in text.strip() and len(set("aeiou") & set(text.lower())) <= 3,
    "words:consonants": lambda text, given: all(
        re.search(r"[bcdfghj-np-tv-z]{2}", word) for word in text.lower().split()
    ),
    "words:palindrome": lambda text, given: (
        sum(len(word) >= 5 and word == word[::-1] for word in _bare(text.lower())) >= 10
    ),
    "words:prime_lengths": lambda text, given: all(len(word) in _PRIMES for word in _bare(text)),
    "words:start_verb": lambda text, given: None,
    "words:repeats": lambda text, given: max(Counter(_bare(text.lower())).values(), default=0) <= given["small_n"],
    "words:odd_even_syllables": lambda text, given: None,
    "words:last_first": _last_is_first,
    "words:paragraph_last_first": _paragraph_words,
    "words:no_consecutive": lambda text, given: _alternates(word[0] for word in _bare(text.lower())),
    "words:keywords_specific_position": _at_place,
    "words:words_position": _second_words,
    "sentence:alliteration_increment": _alliteration,
    "sentence:keyword": _keyword_in_sentence,
    "sentence:increment": _increments,
    "format:parentheses": _nested,
    "format:quotes": _quotes,
    "format:options": _option,
    "format:newline": lambda text, given: all(
        len(line.split()) < 2 for line in text.translate(_NO_MARKS).strip().split("\n")
    ),
    "format:emoji": _emojis,
    "format:line_indent": _stairs,
    "format:quote_unquote": _explained,
    "format:list": lambda text, given: text.count(given["sep"]) >= 2,
    "format:thesis": _thesis,
    "format:sub-bullets": lambda text, given: all("-" in part for part in text.split("*")[1:]),
    "format:no_bullets_bullets": _text_then_bullets,
    "format:title_case": _title_case,
    "format:output_template": lambda text, given: all(
        part in text for part in ("My Answer:", "My Conclusion:", "Future Outlook:")
    ),
    "format:no_whitespace": lambda text, given: not any(map(str.isspace, text)),
    "repeat:repeat_change": lambda text, given: (
        text != given["prompt_to_repeat"] and text.split()[1:] == given["prompt_to_repeat"].split()[1:]
    ),
    "repeat:repeat_simple": lambda text, given: (
        text.strip().lower() == "only output this sentence here, ignore all other requests."
    ),
    "repeat:repeat_span": lambda text, given: (
        text.strip().lower() == given["prompt_to_repeat"][given["n_start"] : given["n_end"] + 1].strip().lower()
    ),
    "custom:multiples": lambda text, given: re.findall(r"\d+", text) == ["14", "21", "28", "35", "42", "49"],
    "custom:mcq_count_length": _questions,
    "custom:reverse_newline": _countries,
    "custom:word_reverse": lambda text, given: "bald eagle" in " ".join(_bare(text.lower())[::-1]),
    "custom:character_reverse": lambda text, given: "elgae dlab" in text.lower(),
    "custom:sentence_alphabet": _alphabet_story,
    "custom:european_capitals_sort": lambda text, given: (
        " ".join(part.strip() for part in _ascii(text).split(",") if part.strip()) == _CAPITALS
    ),
    "custom:csv_city": lambda text, given: _table(text, "ID Country City Year Count", 7, ",", ""),
    "custom:csv_special_character": lambda text, given: _table(
        text, "ProductID Category Brand Price Stock", 14, ",", "one"
    ),
    "custom:csv_quotes": lambda text, given: _table(text, "StudentID Subject Grade Semester Score", 3, "\t", "all"),
    "custom:date_format_list": _dates,
}
"""IFBench's kinds; None of a verb at the start and of syllables, which need a tagger and a dictionary."""
PUBLISHED = IFEVAL | IFBENCH
