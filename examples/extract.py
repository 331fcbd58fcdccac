"""Facts from sentences into a table: the form is a JSON schema, which the model cannot leave.

    extract.py MODEL.gguf [table.db]

A model that follows instructions fills in what the sentences say; a small one still keeps the form.
"""
import json
import sqlite3
import sys

import lace

SENTENCES = ["Ada Lovelace was born in London in 1815.",
             "In 1912 Alan Turing was born in Maida Vale.",
             "Emmy Noether, of Erlangen, was born in 1882."]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 2, "maxLength": 40},
                   "born": {"type": "integer", "minimum": 1000, "maximum": 2100},
                   "place": {"type": "string", "minLength": 2, "maxLength": 40}},
    "required": ["name", "born", "place"],
    "additionalProperties": False,
}

table = sqlite3.connect(sys.argv[2] if len(sys.argv) > 2 else ":memory:")
table.execute("CREATE TABLE IF NOT EXISTS people (name TEXT, born INTEGER, place TEXT)")
with lace.Model(sys.argv[1]) as model:
    form = model.grammar(SCHEMA, "json_schema")
    for sentence in SENTENCES:
        reply = model.chat([{"role": "user", "content": f"Who, when, where? {sentence}"}],
                           variables={"enable_thinking": False}, grammar=form, temperature=0,
                           max_tokens=200)
        table.execute("INSERT INTO people VALUES (:name, :born, :place)", json.loads(reply.content))
table.commit()

print(f"{'name':40} {'born':>6}  place")
for name, born, place in table.execute("SELECT * FROM people"):
    print(f"{name[:40]:40} {born:>6}  {place[:40]}")
