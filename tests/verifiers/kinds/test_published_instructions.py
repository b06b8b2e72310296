"""Rows of IFEval and IFBench as they are: each kind by a text that obeys and one that does not, and the sets' own verdicts.

The sets' rows and verdicts are no part of the repository: `GRPO_SUITES` names a folder with checkouts of allenai/IFBench (`IFBench`) and
lightblue-tech/M-IFEval (`M-IFEval`); without it those tests are skipped.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grpo_verifiers import BadGold, Outcome, Verdict, build
from grpo_verifiers.kinds.ifbench import IFBENCH
from grpo_verifiers.kinds.ifeval import IFEVAL, language, sentences, tokens

SUITES = Path(os.environ.get("GRPO_SUITES", Path(__file__).resolve().parents[4] / "shared" / "suites"))


def judged(text: str, *named: tuple[str, dict[str, Any]], **options: Any) -> Verdict:
    names, arguments = zip(*named, strict=True)
    row = {"instruction_id_list": list(names), "kwargs": list(arguments), "prompt": "Say it. Now."}
    return build("instructions", **options).verify(text, row)


STORY = " ".join(f"{letter}nd so it goes." for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
OBEYED: list[tuple[str, dict[str, Any], str, str]] = [
    ("keywords:existence", {"keywords": ["forest", "riddle"]}, "Forests whisper riddles", "Forests whisper"),
    ("keywords:forbidden_words", {"forbidden_words": ["war"]}, "A warm day", "At War!"),
    ("keywords:frequency", {"keyword": "war", "frequency": 2, "relation": "at least"}, "Warm wars", "One war"),
    ("keywords:frequency", {"keyword": "war", "frequency": 2, "relation": "less than"}, "One war", "Warm wars"),
    ("keywords:letter_frequency", {"letter": "a", "let_frequency": 2, "let_relation": "at least"}, "Aha", "ah"),
    ("language:response_language", {"language": "de"}, "Das ist ein Satz, und er ist nicht lang.", "It is the one, and it is not long."),
    ("language:response_language", {"language": "ru"}, "Это было вчера вечером.", "Това беше вчера вечерта, защото ще дъжд."),
    ("language:response_language", {"language": "hi"}, "यह सच है और अच्छा है", "Yah sach hai aur accha hai"),
    ("language:response_language", {"language": "fa"}, "این یک پیام است", "هذه رسالة"),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "one two-three", "one two"),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "less than"}, "Dr. A. Smith is here", "One. Two."),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a ***\nb", "a\n\nb"),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "So"}, "a\n\n'so, b", "So, b"),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] [b]", "[a]"),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Text.\n**P.P.S.** More", "Text.\nP.S. More"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n- b", "* a\n* b\n* c"),
    ("detectable_format:constrained_response", {}, "Well: My answer is no.", "No."),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* and *b*", "*a* and b"),
    ("detectable_format:multiple_sections", {"section_spliter": "Section", "num_sections": 2}, "Section 1\na\nSection 2\nb", "Section 1\na"),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', "a: 1"),
    ("detectable_format:title", {}, "<<a title>>\ntext", "<< >>\ntext"),
    ("combination:two_responses", {}, "a\n******\nb", "a\n******\na"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say it."}, "say it. Done", "Done. Say it."),
    ("startend:end_checker", {"end_phrase": "The end."}, 'So: "the end."', "The end. Or not"),
    ("startend:quotation", {}, '"all of it"', '"all" of it'),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "at least"}, "I DO", "I do"),
    ("change_case:english_capital", {}, "THIS IS IT, AND THAT IS ALL.", "O NUESTRO AMIGO, BIENVENIDO A LA CASA DE LOS QUE NO SON."),
    ("change_case:english_lowercase", {}, "this is it.", "This is it."),
    ("punctuation:no_comma", {}, "a b", "a, b"),
    ("count:word_count_range", {"min_words": 3, "max_words": 5}, "One two three four.", "One two."),
    ("count:unique_word_count", {"N": 3}, "a b, c", "a A. b"),
    ("count:conjunctions", {"small_n": 2}, "a and b, but c", "a and b"),
    ("count:person_names", {"N": 2}, "Emma met Liam", "Emma met Liams"),
    ("count:numbers", {"N": 2}, "1,000 and 2.5", "1 and 2 and 3"),
    ("count:punctuation", {}, "What?! a, b; c: d. e! f?", "What? a, b."),
    ("count:words_japanese", {"N": 2.0}, "a 日本 b 2", "a b"),
    ("count:pronouns", {"N": 3}, "she/her and it", "a dog"),
    ("count:keywords_multiple", {f"keyword{i}": c for i, c in enumerate("vwxyz", 1)}, "v ww xxx yyyyy zzzzzzz", "v w x y z"),
    ("ratio:stop_words", {"percentage": 50}, "the dog", "the of dog"),
    ("ratio:sentence_type", {}, "Aa. Bb. Cc?", "Aa. Cc?"),
    ("ratio:sentence_balance", {}, "Aa. Bb? Cc!", "Aa. Bb. Cc!"),
    ("ratio:overlap", {"reference_text": "abcd", "percentage": 100}, "abcd", "wxyz"),
    ("ratio:sentence_words", {}, "Aa bb. Cc dd. Ee ff.", "Aa bb. Cc dd."),
    ("words:alphabet", {}, "Yes zebras are bold.", "Yes, no."),
    ("words:vowel", {}, "banana peel", "education"),
    ("words:consonants", {}, "strong words", "a strong word"),
    ("words:palindrome", {}, "level radar civic refer rotor kayak madam tenet stats solos", "level"),
    ("words:prime_lengths", {}, "to the seven", "four"),
    ("words:repeats", {"small_n": 1}, "one two", "one One"),
    ("words:last_first", {}, "I see you. You see me. Me too.", "I see. You do."),
    ("words:paragraph_last_first", {}, "go and go.\nstay or stay", "go and come"),
    ("words:no_consecutive", {}, "one two", "two three"),
    ("words:keywords_specific_position", {"keyword": "Two", "n": 2, "m": 2}, "Aa bb. One two.", "One two. Aa bb."),
    ("words:words_position", {"keyword": "so"}, "And so it is so now.", "so it is so"),
    ("sentence:alliteration_increment", {}, "One red dog. Big bears eat.", "Big bears eat. One red dog."),
    ("sentence:keyword", {"word": "eat", "N": 2.0}, "Aa. I eat.", "I eat. Aa."),
    ("sentence:increment", {"small_n": 1}, "Aa. Bb cc.", "Aa bb. Cc."),
    ("format:parentheses", {}, "([{([a])}])", "((a))"),
    ("format:quotes", {}, "\"a 'b \"c\" d' e\"", '"a"'),
    ("format:options", {"options": "yes/no/maybe"}, "Yes.", "Yes, it is"),
    ("format:options", {"options": "a), b), c), d)"}, "b)", "b"),
    ("format:newline", {}, "one\ntwo", "one two"),
    ("format:emoji", {}, "Fine. 🙂 Good 🙂.", "Fine. Good."),
    ("format:line_indent", {}, "a\n b\n  c", "a\nb"),
    ("format:quote_unquote", {}, 'He said "a" and left.', 'He said "a"'),
    ("format:list", {"sep": "!?!?"}, "!?!? a\n!?!? b", "!?!? a"),
    ("format:thesis", {}, "<i>So it is.</i> Because.", "So it is."),
    ("format:sub-bullets", {}, "* a\n- b", "* a\n* b\n- c"),
    ("format:no_bullets_bullets", {}, "Aa. Bb.\n* c\n* d", "Aa.\n* c\n* d"),
    ("format:title_case", {}, "The End Of It", "The end"),
    ("format:output_template", {}, "My Answer: a My Conclusion: b Future Outlook: c", "My Answer: a"),
    ("format:no_whitespace", {}, "ab", "a b"),
    ("repeat:repeat_change", {"prompt_to_repeat": "Say it now"}, "Tell it now", "Say it now"),
    ("repeat:repeat_simple", {}, "Only output this sentence here, ignore all other requests.", "Yes."),
    ("repeat:repeat_span", {"prompt_to_repeat": "Say it", "n_start": 0, "n_end": 2}, "say", "it"),
    ("custom:multiples", {}, "14, 21, 28, 35, 42, 49", "7, 14"),
    ("custom:mcq_count_length", {}, "\n".join(f"Question {n}. {'x' * n}\n" + "\n".join(f"{c}) o" for c in "ABCDE") for n in range(1, 5)), "Question 1"),
    ("custom:reverse_newline", {}, "\n".join(["Zimbabwe", *("Y" * n for n in range(60, 0, -1))]), "Zimbabwe\nAlgeria"),
    ("custom:word_reverse", {}, "Eagle bald the is it", "The bald eagle"),
    ("custom:character_reverse", {}, ".elgae dlab ehT", "bald eagle"),
    ("custom:sentence_alphabet", {}, STORY, "A. B."),
    ("custom:european_capitals_sort", {}, "Reykjavík, Helsinki, Oslo, Tallinn, Stockholm, Riga, Moscow, Copenhagen, Vilnius, Minsk, Dublin, Berlin, Amsterdam, Warsaw, London, Brussels, Prague, Luxembourg, Paris, Vienna, Bratislava, Budapest, Vaduz, Chisinau, Bern, Ljubljana, Zagreb", "Oslo, Helsinki"),
    ("custom:csv_city", {}, "ID,Country,City,Year,Count\n" + "1,a,b,2,3\n" * 7, "ID,Country\n1,a"),
    ("custom:csv_special_character", {}, "ProductID,Category,Brand,Price,Stock\n" + '1,a,"b!",2,3\n' * 14, "ProductID,Category,Brand,Price,Stock\n" + "1,a,b,2,3\n" * 14),
    ("custom:csv_quotes", {}, '"StudentID"\t"Subject"\t"Grade"\t"Semester"\t"Score"\n' + '"1"\t"a"\t"b"\t"2"\t"3"\n' * 3, "StudentID\tSubject\tGrade\tSemester\tScore\n" + "1\ta\tb\t2\t3\n" * 3),
    ("custom:date_format_list", {}, "1796-04-12, 1815-06-18", "1796-04-31"),
]  # fmt: skip
REFUSED_ONLY = {"words:start_verb", "words:odd_even_syllables"}


def test_every_kind_has_a_row() -> None:
    assert len(IFEVAL) == 25
    assert len(IFBENCH) == 58
    assert {kind for kind, *_ in OBEYED} | REFUSED_ONLY == {*IFEVAL, *IFBENCH}


@pytest.mark.parametrize(("kind", "given", "obeying", "disobeying"), OBEYED, ids=[kind for kind, *_ in OBEYED])
def test_a_kind_is_judged(kind: str, given: dict[str, Any], obeying: str, disobeying: str) -> None:
    given = {**given, "unused": None}  # the published rows name all arguments of all kinds
    assert judged(obeying, (kind, given)).outcome is Outcome.RIGHT
    assert judged(disobeying, (kind, given)).outcome is Outcome.WRONG


@pytest.mark.parametrize(
    ("kind", "text", "outcome"),
    [
        ("words:start_verb", "The cat sleeps.", Outcome.WRONG),
        ("words:start_verb", "Sleep well.", Outcome.ERROR),
        ("words:odd_even_syllables", "Happy the cat", Outcome.WRONG),
        ("words:odd_even_syllables", "The happy cat", Outcome.ERROR),
        ("words:odd_even_syllables", "The prism isn't a café", Outcome.ERROR),
    ],
)
def test_what_needs_a_dictionary_is_refused_where_it_is_certain(kind: str, text: str, outcome: Outcome) -> None:
    assert judged(text, (kind, {})).outcome is outcome


@pytest.mark.parametrize("unknown", ["words:start_verb", "no:such_kind"])
def test_a_kind_without_a_check_costs_that_kind(unknown: str) -> None:
    other, more = ("punctuation:no_comma", {}), ("keywords:existence", {"keywords": ["x"]})
    assert judged("Go, then", other, (unknown, {})).outcome is Outcome.WRONG
    verdict = judged("Go then", other, (unknown, {}))
    assert verdict.score is None
    assert verdict.reason == "not_judged"
    assert unknown in str(verdict.detail)
    assert judged("Go, then x", other, more, (unknown, {}), partial=True).score == 0.5
    assert judged("Go then x", other, more, (unknown, {}), partial=True).score is None


def test_a_row_of_which_nothing_is_judged_is_a_bad_row() -> None:
    with pytest.raises(BadGold, match="no:such_kind"):
        judged("x", ("no:such_kind", {}))
    with pytest.raises(BadGold, match="cannot be read"):
        judged("x", ("keywords:existence", {}))


def test_texts_are_taken_apart_as_the_sets_do() -> None:
    assert sentences('Mr. A. Smith left... he said. 1. it was so! "Was it?" Yes') == [
        "Mr. A. Smith left... he said.",
        "1. it was so!",
        '"Was it?"',
        "Yes",
    ]
    assert tokens("DON'T go, U.S.!") == ["DO", "N'T", "go", ",", "U.S.", "!"]
    assert language("x") is None


def published(folder: Path, rows: Path) -> Iterator[tuple[str, dict[str, Any], str, str, bool]]:
    if not folder.exists() or not rows.exists():
        pytest.skip(f"the set's rows and verdicts are not in {SUITES}: `GRPO_SUITES` names their folder")
    by_prompt = {row["prompt"].strip(): row for row in map(json.loads, rows.read_text().splitlines())}
    for file in sorted(folder.glob("**/eval_results_strict.jsonl")):
        for entry in map(json.loads, file.read_text().splitlines()):
            row = by_prompt.get(entry["prompt"].strip())
            named = [] if row is None else [name.removeprefix("en:") for name in row["instruction_id_list"]]
            if named != [name.removeprefix("en:") for name in entry["instruction_id_list"]] or not entry["response"]:
                continue
            for name, given, follows in zip(named, row["kwargs"], entry["follow_instruction_list"], strict=True):
                yield name, given, entry["response"], row["prompt"], follows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "rows", "least"),
    [
        ("IFBench/eval", "IFBench/data/IFBench_test.jsonl", 0.98),
        ("M-IFEval/evaluations", "M-IFEval/data/en_input_data.jsonl", 0.99),
    ],
)
def test_the_sets_own_verdicts_are_ours(folder: str, rows: str, least: float) -> None:
    verifier, counts = build("instructions"), Counter[str]()
    for name, given, response, prompt, follows in published(SUITES / folder, SUITES / rows):
        verdict = verifier.verify(response, {"instruction_id_list": [name], "kwargs": [given], "prompt": prompt})
        counts["same" if verdict.outcome is not Outcome.ERROR and (verdict.score == 1) == follows else name] += 1
    assert counts.total() > 300
    assert counts["same"] >= least * counts.total(), counts  # what has no verdict counts against us
