"""One SQL query in SQLite: it may read what its database holds and nothing else."""

from __future__ import annotations

import json
import os
import sqlite3
from typing import Any

from .wall import values

MOST_BYTES = 1 << 20
ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
REFUSED_FUNCTIONS = {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"}


def run(payload: dict[str, Any], out: int) -> int:
    """Write the rows of one query on a database made for it as one line of JSON."""
    os.write(out, answer(payload["schema"], payload["query"], payload["most"]).encode() + b"\n")
    return 0


def answer(schema: str, query: str, most: int) -> str:
    """The rows and the names of their columns as JSON, or why there are none."""
    database = sqlite3.connect(":memory:", isolation_level=None)
    try:
        database.executescript(schema)
    except sqlite3.Error as err:
        return json.dumps({"broken": str(err)[:300]})
    # after the schema, which is trusted: from here on one value cannot fill the memory
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
    database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    database.set_authorizer(_may)
    try:
        cursor = database.execute(query)
        if cursor.description is None:
            return json.dumps({"x": "not a query"})
        # one more than is allowed says that there were too many
        rows = cursor.fetchmany(most + 1)
    except (sqlite3.Error, sqlite3.Warning, ValueError) as err:
        return json.dumps({"x": str(err)[:300]})
    names = [column[0] for column in cursor.description]
    return json.dumps({"v": [[values.encode(value) for value in row] for row in rows], "names": names})


def _may(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
    if action in ALLOWED:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and second not in REFUSED_FUNCTIONS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY
