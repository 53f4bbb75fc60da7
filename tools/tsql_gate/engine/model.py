"""Builds a DacFx model of the files, the one behind SSDT projects, and validates it.

It sees what a name lookup does not: duplicates, two identities, missing sequences, dangling references.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from tools.tsql_gate.engine import dotnet
from tools.tsql_gate.engine.finding import SYSTEM_STUBS, Finding, Source

MODELLED = ("Create", "Grant", "Deny", "AlterTableAddTableElement", "AlterTableConstraintModification")
"""Statements that define something; the rest (guards, SET, DML, EXEC) is blanked in place."""
FALSE_ALARMS = re.compile(
    r"unresolved reference to object \[sys\]\.\[sp_executesql\]"
    r"|unresolved reference to object \[#pysqlbox_(?:doctor|metrics)\]"
)
"""What cannot be stubbed: a system procedure whose parameter list is open, a caller's temporary table."""
_PART = "#"


def validate(sources: Sequence[Source], schema: str) -> Iterator[Finding]:
    """Findings of the model that all files make; unresolved references count, though DacFx only warns."""
    dotnet.load("TransactSql.ScriptDom", "Dac", "Dac.Extensions")
    dac = dotnet.namespace("Microsoft.SqlServer.Dac.Model")
    model = dac.TSqlModel(dac.SqlServerVersion.Sql150, dac.TSqlModelOptions())
    quoted = schema.replace("]", "]]")
    model.AddOrUpdateObjects(
        f"{SYSTEM_STUBS}CREATE SCHEMA [{quoted}]\nGO\n", "<system objects>", dac.TSqlObjectOptions()
    )
    for label, text in sources:
        for number, definition in enumerate(_definitions(text)):
            try:
                model.AddOrUpdateObjects(definition, f"{label}{_PART}{number}", dac.TSqlObjectOptions())
            except dac.DacModelException as error:
                for message in error.Messages:
                    yield Finding(label, 1, 1, "model", str(message))
    yield from _errors(model)


def _errors(model: Any) -> Iterator[Finding]:
    """The model's errors with their places, which only the private service behind `Validate` tells."""
    system = dotnet.namespace("System")
    service = model.GetType().GetField("_service", dotnet.instance_members()).GetValue(model)
    method = service.GetType().GetMethod("GetModelValidationErrors", dotnet.instance_members())
    categories = system.Array[system.String]([])
    for error in method.Invoke(service, system.Array[system.Object]([categories])):
        kind = error.GetType()

        def read(name: str, error: Any = error, kind: Any = kind) -> Any:
            return kind.GetProperty(name, dotnet.instance_members()).GetValue(error)

        label = str(read("Document")).removeprefix("MSSQL::").partition(_PART)[0]
        code = f"{read('Prefix')}{read('ErrorCode')}"
        if FALSE_ALARMS.search(str(read("Message"))):
            continue
        yield Finding(label, int(read("Line")), int(read("Column")), "model", f"{code} {read('Message')}")


def _definitions(text: str) -> Iterator[str]:
    """Each definition by itself, as a model takes them, in its place among blanks and without `OR ALTER`.

    A text that does not parse has none; the lint reports it.
    """
    script_dom = dotnet.namespace("Microsoft.SqlServer.TransactSql.ScriptDom")
    reader = dotnet.namespace("System.IO").StringReader
    fragment, errors = script_dom.TSql150Parser(True).Parse(reader(text), None)
    if list(errors):
        return
    blank = re.sub(r"[^\r\n]", " ", text)
    for batch in fragment.Batches:
        for statement in batch.Statements:
            for definition in _modelled(statement):
                kept = list(blank)
                start, end = definition.StartOffset, definition.StartOffset + definition.FragmentLength
                kept[start:end] = text[start:end]
                if type(definition).__name__.startswith("CreateOrAlter"):
                    _blank_or_alter(definition, kept)
                yield "".join(kept)


def _modelled(statement: Any) -> Iterator[Any]:
    """The definitions in a statement: itself, or those inside guards and blocks."""
    kind = type(statement).__name__
    if kind == "IfStatement":
        yield from _modelled(statement.ThenStatement)
        if statement.ElseStatement is not None:
            yield from _modelled(statement.ElseStatement)
    elif kind == "BeginEndBlockStatement":
        for inner in statement.StatementList.Statements:
            yield from _modelled(inner)
    elif kind.startswith(MODELLED):
        yield statement


def _blank_or_alter(statement: Any, kept: list[str]) -> None:
    for index in range(statement.FirstTokenIndex, statement.LastTokenIndex):
        token = statement.ScriptTokenStream[index]
        word = str(token.Text).upper()
        if word in ("OR", "ALTER"):
            kept[token.Offset : token.Offset + len(word)] = " " * len(word)
        if word == "ALTER":
            return
