"""Parses T-SQL with ScriptDom and walks its syntax tree for what neither binder nor model complains about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from tools.tsql_gate.engine import dotnet
from tools.tsql_gate.engine.finding import Finding, Source

BLOCKS = frozenset({"IfStatement", "WhileStatement", "LabelStatement"})
"""These end with their inner statement, which has the semicolon."""


def lint(sources: Sequence[Source]) -> Iterator[Finding]:
    """Syntax errors, statements without `;`, INSERTs whose column and value counts differ."""
    script_dom = _script_dom()
    is_statement = dotnet.runtime().GetClrType(script_dom.TSqlStatement).IsInstanceOfType
    for label, text in sources:
        fragment, errors = _parse(text)
        for error in errors:
            yield Finding(label, error.Line, error.Column, "syntax", f"SQL{error.Number} {error.Message}")
        if errors:
            continue
        for node in walk(fragment):
            message = _unterminated(node) if is_statement(node) else _miscounted(node)
            if message:
                yield Finding(label, node.StartLine, node.StartColumn, "lint", message)


def parsed(sources: Sequence[Source]) -> Iterator[tuple[str, Any]]:
    """The syntax tree of each file that has one."""
    for label, text in sources:
        fragment, errors = _parse(text)
        if not errors:
            yield label, fragment


def _script_dom() -> Any:
    dotnet.load("TransactSql.ScriptDom")
    return dotnet.namespace("Microsoft.SqlServer.TransactSql.ScriptDom")


def _parse(text: str) -> tuple[Any, list[Any]]:
    reader = dotnet.namespace("System.IO").StringReader
    fragment, errors = _script_dom().TSql150Parser(True).Parse(reader(text), None)
    return fragment, list(errors)


def _unterminated(node: Any) -> str | None:
    kind = node.GetType().Name
    if kind in BLOCKS or node.ScriptTokenStream[node.LastTokenIndex].Text == ";":
        return None
    following = _token_after(node)
    # The body of a view or function leaves the semicolon to the CREATE around it; none may stand before ELSE.
    if following == ";" or (following == "ELSE" and kind == "BeginEndBlockStatement"):
        return None
    return f"{kind} does not end with ';'"


def _token_after(node: Any) -> str:
    tokens = node.ScriptTokenStream
    for index in range(node.LastTokenIndex + 1, tokens.Count):
        if str(tokens[index].TokenType) not in ("WhiteSpace", "SingleLineComment", "MultilineComment"):
            return str(tokens[index].Text or "").upper()
    return ""


def _miscounted(node: Any) -> str | None:
    if node.GetType().Name != "InsertSpecification" or not node.Columns.Count:
        return None
    source = node.InsertSource
    kind = source.GetType().Name
    if kind == "ValuesInsertSource":
        supplied = {row.ColumnValues.Count for row in source.RowValues}
    elif kind == "SelectInsertSource" and source.Select.GetType().Name == "QuerySpecification":
        elements = list(source.Select.SelectElements)
        if any(element.GetType().Name == "SelectStarExpression" for element in elements):
            return None
        supplied = {len(elements)}
    else:
        return None
    if supplied == {node.Columns.Count}:
        return None
    return f"INSERT lists {node.Columns.Count} columns but supplies {sorted(supplied)}"


@cache
def _fragment_type() -> Any:
    script_dom = dotnet.namespace("Microsoft.SqlServer.TransactSql.ScriptDom")
    return dotnet.runtime().GetClrType(script_dom.TSqlFragment)


@cache
def _list_type() -> Any:
    return dotnet.runtime().GetClrType(dotnet.namespace("System.Collections").IEnumerable)


_CHILDREN: dict[str, list[Any]] = {}


def _child_properties(kind: Any) -> list[Any]:
    """The properties of a node class that hold nodes or lists of them."""
    name = str(kind.FullName)
    if name not in _CHILDREN:
        _CHILDREN[name] = [
            member
            for member in kind.GetProperties()
            if member.Name != "ScriptTokenStream"
            and not member.GetIndexParameters().Length
            and (
                _fragment_type().IsAssignableFrom(member.PropertyType)
                or (member.PropertyType.IsGenericType and _list_type().IsAssignableFrom(member.PropertyType))
            )
        ]
    return _CHILDREN[name]


def walk(node: Any) -> Iterator[Any]:
    yield node
    for member in _child_properties(node.GetType()):
        value = member.GetValue(node)
        if value is None:
            continue
        children = [value] if _fragment_type().IsAssignableFrom(member.PropertyType) else list(value)
        for child in children:
            if child is not None and _fragment_type().IsInstanceOfType(child):
                yield from walk(child)
