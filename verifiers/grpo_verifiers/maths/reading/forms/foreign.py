"""Words of other languages behind numbers. Units are named as in English; what compares, joins or denies is no noun."""

from __future__ import annotations

from grpo_verifiers.maths.reading.vocabulary import names

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

UNITS = {
    word: name for line in _TABLE.split("\n") if line for name, *words in [line.split()] for word in words
}
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
    " ".join(phrase.replace("'", "").split()): name
    for name, listed in _PHRASES.items()
    for phrase in listed.split(",")
}
"""Answers in whole phrases of other languages, in lower case, and what each is called in English."""

_POWERS = {"平方": "square", "立方": "cubic", "кв": "square", "куб": "cubic"}
_COMPARING = (
    "以上",
    "以下",
    "以内",
    "以外",
    "未满",
    "未滿",
    "超过",
    "超過",
    "至少",
    "至多",
    "大于",
    "小于",
    "不",
    "非",
    "没",
    "이상",
    "이하",
    "미만",
    "초과",
)
_DENYING = names("более менее больше меньше выше ниже не ない 아니")
JOINING = {
    "或": "or",
    "或者": "or",
    "или": "or",
    "または": "or",
    "和": "and",
    "и": "and",
    "と": "and",
    "또는": "or",
    "또": "or",
    "ou": "or",
    "oder": "or",
    "oppure": "or",
    "et": "and",
    "und": "and",
}
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
