"""The instructions of IFBench (arXiv:2507.02833) by their published names, judged as it judges them.

How this works: as in `ifeval`, each row of `IFBENCH` is a function of the text and the row's own arguments, with the set's rules of
counting, written anew. A verb at the start and syllables in turn are only ever refused, where that is certain, because there is no
tagger of parts of speech and no dictionary of syllables here. The time is linear in the text, except for comparisons with a row's own texts.
"""

from __future__ import annotations

import csv
import io
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from grpo_verifiers.kinds.ifeval import Check, Given, finds, sentences, tokens, words
from grpo_verifiers.maths.reading.vocabulary import names

_MARKS = string.punctuation + " "
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
    return Counter(sentence.rstrip("\"'”’")[-1:] for sentence in sentences(text))


def _alternates(letters: Iterable[str]) -> bool:
    return all(a != b for a, b in pairwise(letters))


def _syllables_alternate(text: str, given: Given) -> bool | None:
    """False where two neighbours surely have one syllable each: one vowel, and no syllable without one (`prism`, `isn't`)."""
    ones = [
        re.match(r"\A[A-Z]?[b-df-hj-np-tv-xz]*+[AEIOUYaeiouy][b-df-hj-np-tv-xz]*+\Z", word) is not None
        and not word.endswith(("sm", "thm", "dnt", "snt"))
        for word in _bare(text)
    ]
    return False if any(a and b for a, b in pairwise(ones)) else None


def _starts_with_verb(text: str, given: Given) -> bool | None:
    """False where the first word is of a closed class without verbs."""
    first = next(iter(_bare(text.lower())), "")
    return (
        False if first in _PRONOUNS | names("a an the of for with from in on at by and but or if because as") else None
    )


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
    if re.match(r"\A\W*a\W*b\W*c", listed, re.I):
        return text in options
    return text.strip(_MARKS).lower() in {option.strip(_MARKS).lower() for option in options}


def _is_emoji(char: str) -> bool:
    return unicodedata.category(char) == "So" and ord(char) > 0x203B


def _emojis(text: str, given: Given) -> bool:
    said = [sentence.translate(_NO_MARKS).strip() for sentence in sentences(text)]
    if not all(said):
        return False
    # an emoji after the final mark is split off to the start of the next sentence
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
    return bool(found) and finds(rf"\b{re.escape(given['word'])}\b", found[0]) > 0


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
    starts = [at for mark in ("<i>", "<em>") if (at := text.find(mark)) >= 0]
    ends = [at for mark in ("</i>", "</em>") if (at := text.find(mark, min(starts, default=0))) >= 0]
    if not starts or not ends:
        return False
    said, rest = text[min(starts) : min(ends)], text[min(ends) :]
    return bool(said.partition(">")[2].strip()) and bool(rest.partition(">")[2].strip())


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
    try:
        data = list(csv.reader(io.StringIO(text.replace('"', '"""') if quoted else text), delimiter=mark))
    except csv.Error:  # a field too long, a NUL
        return False
    if head != columns.split() or len(data) != rows + 1 or any(len(row) != len(head) for row in data[1:]):
        return False
    fields = [field.strip() for row in data for field in row]
    if quoted == "all":
        return all(len(field) > 0 and field[0] == field[-1] == '"' for field in fields)
    return not quoted or any(
        field[:1] == field[-1:] == '"' and re.search(r"[^\w\s]", field[1:-1]) for field in fields[len(head) :]
    )


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
    return [token.lower() for token in said[given["m"] - 1 : given["m"]]] == [given["keyword"].strip().lower()]


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
    "count:person_names": lambda text, given: len(_PEOPLE & set(words(text))) >= given["N"],
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
    "words:start_verb": _starts_with_verb,
    "words:repeats": lambda text, given: max(Counter(_bare(text.lower())).values(), default=0) <= given["small_n"],
    "words:odd_even_syllables": _syllables_alternate,
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
"""IFBench's kinds."""
