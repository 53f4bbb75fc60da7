"""Finds what FORCESEEK asks for in vain: error 8622 of SQL Server, which only planning would show.

Such a table must be sought by a predicate on the leading column of an index, as the query is written:
compared with what does not depend on the table itself, nor on one that could only be read after it; or found
in a set of the call's own by that set's key, which is as good as a join. A filtered index counts only where
the query repeats its filter, and a text of the type max is no key to seek by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tools.tsql_gate.engine.finding import Finding, Source
from tools.tsql_gate.engine.lint import parsed, walk

RANGES = frozenset({"Equals", "LessThan", "GreaterThan", "LessThanOrEqualTo", "GreaterThanOrEqualTo"})


DATES = frozenset({"DATEADD", "DATEDIFF", "DATEDIFF_BIG", "DATEPART"})


@dataclass(frozen=True, slots=True)
class Index:
    """An index or a key: what it begins with, and which predicates a query must repeat."""

    name: str
    leading: str
    filters: frozenset[str]


@dataclass(slots=True)
class Table:
    """A table as one query reads it."""

    alias: str
    name: str
    node: Any
    forced: bool = False
    indexes: frozenset[str] = frozenset()
    """Those that a hint leaves it; empty: all."""


@dataclass(slots=True)
class Query:
    """One SELECT, UPDATE or DELETE without what is nested in it: its tables, and what must hold."""

    tables: dict[str, Table] = field(default_factory=dict)
    conditions: list[tuple[Any, frozenset[str] | None]] = field(default_factory=list)
    """Each with the tables that it restricts, None for all."""
    is_ordered: bool = False
    """Whether tables are read in the order in which they stand."""


@dataclass(frozen=True, slots=True)
class Way:
    """By which column a condition leads to a table, and which other tables must be read before."""

    column: str
    needs: frozenset[str]
    others: tuple[Any, ...]
    """What the column is compared with."""


def seeks(sources: Sequence[Source]) -> Iterator[Finding]:
    """Every table with FORCESEEK that cannot be sought."""
    indexes: dict[str, list[Index]] = {}
    for _, tree in parsed([source for source in sources if " INDEX " in source[1] or " KEY " in source[1]]):
        for table, index in _indexes(tree):
            indexes.setdefault(table, []).append(index)
    for label, tree in parsed([source for source in sources if "FORCESEEK" in source[1]]):
        for batch in tree.Batches:
            for statement in batch.Statements:
                nodes = list(walk(statement))
                known = _Known.of(nodes)
                for node in nodes:
                    query = _query(node)
                    if query is not None:
                        yield from _check(label, query, indexes, known)


@dataclass(slots=True)
class _Known:
    """Of a routine's variables: which are texts of the type max, and by which columns sets have a key."""

    lengthy: set[tuple[str, str]] = field(default_factory=set)
    """Variables (under ""), and columns by their set."""
    keys: set[tuple[str, str]] = field(default_factory=set)

    @classmethod
    def of(cls, nodes: Iterable[Any]) -> _Known:
        """What is declared there."""
        found = cls()
        for node in nodes:
            kind = node.GetType().Name
            if kind in ("DeclareVariableElement", "ProcedureParameter"):
                found._note("", [(str(node.VariableName.Value), node.DataType)])
            elif kind == "DeclareTableVariableBody":
                found._note_set(str(node.VariableName.Value), node.Definition)
            elif kind == "OpenJsonTableReference":
                columns = [each.ColumnDefinition for each in node.SchemaDeclarationItems]
                types = [(str(each.ColumnIdentifier.Value), each.DataType) for each in columns]
                found._note(_json_name(node), types)
        return found

    def _note(self, owner: str, types: list[tuple[str, Any]]) -> None:
        self.lengthy |= {(owner, name) for name, data_type in types if _is_max(data_type)}

    def _note_set(self, name: str, definition: Any) -> None:
        columns = list(definition.ColumnDefinitions)
        self._note(name, [(str(each.ColumnIdentifier.Value), each.DataType) for each in columns])
        for column in columns:
            if any(each.GetType().Name == "UniqueConstraintDefinition" for each in column.Constraints):
                self.keys.add((name, str(column.ColumnIdentifier.Value)))
        for constraint in definition.TableConstraints:
            if constraint.GetType().Name == "UniqueConstraintDefinition" and constraint.Columns.Count == 1:
                self.keys.add((name, _names(constraint)[0]))


def _json_name(node: Any) -> str:
    return f"OPENJSON {node.StartOffset}"


def _is_max(data_type: Any) -> bool:
    parameters: Iterable[Any] = getattr(data_type, "Parameters", None) or ()
    return any(each.GetType().Name == "MaxLiteral" for each in parameters)


def _indexes(tree: Any) -> Iterator[tuple[str, Index]]:
    for node in walk(tree):
        kind = node.GetType().Name
        if kind == "CreateTableStatement":
            for constraint in node.Definition.TableConstraints:
                if constraint.GetType().Name == "UniqueConstraintDefinition":
                    name = str(constraint.ConstraintIdentifier.Value)
                    yield _table(node.SchemaObjectName), Index(name, _names(constraint)[0], frozenset())
        elif kind == "CreateIndexStatement":
            filters = _conjuncts(node.FilterPredicate) if node.FilterPredicate is not None else []
            texts = frozenset(text for each in filters if (text := _null_test(each)[1]) is not None)
            if len(texts) == len(filters):
                yield _table(node.OnName), Index(str(node.Name.Value), _names(node)[0], texts)


def _names(owner: Any) -> list[str]:
    return [_last(each.Column) for each in owner.Columns]


def _table(name: Any) -> str:
    return str(name.BaseIdentifier.Value)


def _last(column: Any) -> str:
    identifiers = column.MultiPartIdentifier.Identifiers
    return str(identifiers[identifiers.Count - 1].Value)


# What a query consists of


def _query(node: Any) -> Query | None:
    kind = node.GetType().Name
    if kind not in ("QuerySpecification", "UpdateSpecification", "DeleteSpecification"):
        return None
    query = Query()
    if node.FromClause is not None:
        for reference in node.FromClause.TableReferences:
            _add(query, reference)
    if kind != "QuerySpecification" and node.FromClause is None:
        _add(query, node.Target)
    if node.WhereClause is not None:
        query.conditions += [(each, None) for each in _conjuncts(node.WhereClause.SearchCondition)]
    return query


def _add(query: Query, reference: Any) -> frozenset[str]:
    """Take in what stands behind FROM; the aliases that came with it."""
    kind = reference.GetType().Name
    if kind == "JoinParenthesisTableReference":
        return _add(query, reference.Join)
    if kind in ("QualifiedJoin", "UnqualifiedJoin"):
        before = _add(query, reference.FirstTableReference)
        behind = _add(query, reference.SecondTableReference)
        if kind == "QualifiedJoin":
            how = str(reference.QualifiedJoinType)
            restricted = {"Inner": None, "LeftOuter": behind, "RightOuter": before}.get(how, frozenset())
            conjuncts = _conjuncts(reference.SearchCondition)
            query.conditions += [(each, restricted) for each in conjuncts]
            query.is_ordered |= str(reference.JoinHint) != "None"
        return before | behind
    alias = getattr(reference, "Alias", None)
    if kind == "NamedTableReference":
        name = _table(reference.SchemaObject)
        found = Table(str(alias.Value) if alias is not None else name, name, reference)
        for hint in reference.TableHints:
            found.forced |= str(hint.HintKind) == "ForceSeek"
            if hint.GetType().Name == "IndexTableHint":
                found.indexes = frozenset(str(each.Identifier.Value) for each in hint.IndexValues)
    else:
        found = Table(str(alias.Value) if alias is not None else "", "", reference)
    query.tables[found.alias] = found
    return frozenset({found.alias})


def _conjuncts(condition: Any) -> list[Any]:
    kind = condition.GetType().Name
    if kind == "BooleanParenthesisExpression":
        return _conjuncts(condition.Expression)
    if kind == "BooleanBinaryExpression" and str(condition.BinaryExpressionType) == "And":
        return _conjuncts(condition.FirstExpression) + _conjuncts(condition.SecondExpression)
    return [condition]


def _disjuncts(condition: Any) -> list[Any]:
    kind = condition.GetType().Name
    if kind == "BooleanParenthesisExpression":
        return _disjuncts(condition.Expression)
    if kind == "BooleanBinaryExpression" and str(condition.BinaryExpressionType) == "Or":
        return _disjuncts(condition.FirstExpression) + _disjuncts(condition.SecondExpression)
    return [condition]


# Which ways lead to a table


def _ways(condition: Any, query: Query, alias: str, known: _Known) -> Iterator[Way]:
    """Those by one condition that must hold."""
    alternatives = _disjuncts(condition)
    if len(alternatives) > 1:
        # One seek has many ranges, but all of one column.
        found = [
            {way.column: way for part in _conjuncts(each) for way in _ways(part, query, alias, known)}
            for each in alternatives
        ]
        for column in set.intersection(*(set(ways) for ways in found)):
            needs: frozenset[str] = frozenset().union(*(ways[column].needs for ways in found))
            yield Way(column, needs, tuple(other for ways in found for other in ways[column].others))
        return
    kind = condition.GetType().Name
    if kind == "BooleanComparisonExpression" and str(condition.ComparisonType) in RANGES:
        first, second = condition.FirstExpression, condition.SecondExpression
        yield from _way(first, [second], query, alias)
        yield from _way(second, [first], query, alias)
    elif kind == "BooleanTernaryExpression" and str(condition.TernaryExpressionType) == "Between":
        yield from _way(
            condition.FirstExpression, [condition.SecondExpression, condition.ThirdExpression], query, alias
        )
    elif kind == "InPredicate" and not condition.NotDefined and condition.Subquery is None:
        yield from _way(condition.Expression, list(condition.Values), query, alias)
    elif kind == "InPredicate" and not condition.NotDefined and _is_of_key(condition.Subquery, known):
        yield from _way(condition.Expression, [condition.Subquery], query, alias)
    elif kind == "BooleanIsNullExpression" and not condition.IsNot:
        yield from _way(condition.Expression, [], query, alias)


def _is_of_key(subquery: Any, known: _Known) -> bool:
    """Whether these are all rows, or some, of one set by its key: a message is found once among them."""
    query = None if subquery is None else _query(subquery.QueryExpression)
    if query is None or len(query.tables) != 1:
        return False
    (table,) = query.tables.values()
    elements = list(subquery.QueryExpression.SelectElements)
    expressions = [getattr(each, "Expression", None) for each in elements]
    if table.node.GetType().Name != "VariableTableReference" or len(elements) != 1:
        return False
    column = expressions[0]
    if column is None or column.GetType().Name != "ColumnReferenceExpression":
        return False
    return (str(table.node.Variable.Name), _last(column)) in known.keys


def _way(side: Any, others: list[Any], query: Query, alias: str) -> Iterator[Way]:
    owner = _owner(side, query)
    if owner != alias:
        return
    needs = frozenset().union(*(_needs(other, query) for other in others)) if others else frozenset()
    if alias not in needs:
        yield Way(_last(side), needs, tuple(others))


def _owner(expression: Any, query: Query) -> str | None:
    """The table whose bare column an expression is."""
    if expression.GetType().Name != "ColumnReferenceExpression" or expression.MultiPartIdentifier is None:
        return None
    identifiers = expression.MultiPartIdentifier.Identifiers
    if identifiers.Count > 1:
        return str(identifiers[identifiers.Count - 2].Value)
    return next(iter(query.tables)) if len(query.tables) == 1 else None


def _needs(expression: Any, query: Query) -> frozenset[str]:
    parts = {
        str(each.ScriptTokenStream[each.Parameters[0].FirstTokenIndex].Text)
        for each in walk(expression)
        if each.GetType().Name == "FunctionCall" and str(each.FunctionName.Value) in DATES
    }  # which the parser takes for columns
    owners = {_owner(node, query) for node in walk(expression) if not _is_one_of(node, parts)}
    return frozenset(owner for owner in owners if owner is not None and owner in query.tables)


def _is_one_of(node: Any, parts: set[str]) -> bool:
    return (
        node.GetType().Name == "ColumnReferenceExpression"
        and node.MultiPartIdentifier is not None
        and node.MultiPartIdentifier.Identifiers.Count == 1
        and _last(node) in parts
    )


def _null_test(condition: Any) -> tuple[str | None, str | None]:
    """Of `alias.column IS [NOT] NULL`: the alias, if there is one, and the rest as text."""
    if condition.GetType().Name != "BooleanIsNullExpression":
        return None, None
    identifiers = getattr(condition.Expression, "MultiPartIdentifier").Identifiers  # noqa: B009  # typed Any
    alias = str(identifiers[identifiers.Count - 2].Value) if identifiers.Count > 1 else None
    return alias, f"{_last(condition.Expression)} IS {'NOT ' if condition.IsNot else ''}NULL"


# What is wrong


def _check(label: str, query: Query, indexes: dict[str, list[Index]], known: _Known) -> Iterator[Finding]:
    waiting = {alias: table for alias, table in query.tables.items() if table.forced}
    read = set(query.tables) - set(waiting)
    ways = {alias: list(_usable(table, query, indexes, known)) for alias, table in waiting.items()}
    if query.is_ordered:
        read = set()
        for alias in query.tables:
            if alias not in waiting or any(way.needs <= read for way in ways[alias]):
                waiting.pop(alias, None)
            read.add(alias)
    else:
        while found := [alias for alias in waiting if any(way.needs <= read for way in ways[alias])]:
            for alias in found:
                del waiting[alias]
            read.update(found)
    for table in waiting.values():
        message = f"FORCESEEK on {table.name}, to which no condition leads by the first column of an index"
        yield Finding(label, table.node.StartLine, table.node.StartColumn, "seek", message)


def _usable(table: Table, query: Query, indexes: dict[str, list[Index]], known: _Known) -> Iterator[Way]:
    """The ways to a table by indexes that the query may use."""
    conditions = [
        each for each, restricted in query.conditions if restricted is None or table.alias in restricted
    ]
    stated = set()
    for condition in conditions:
        alias, text = _null_test(condition) if _is_bare_null_test(condition) else (None, None)
        if text is not None and alias in (None, table.alias):
            stated.add(text)
    leading = {
        index.leading
        for index in indexes.get(table.name, ())
        if index.filters <= stated and (not table.indexes or index.name in table.indexes)
    }
    for condition in conditions:
        for way in _ways(condition, query, table.alias, known):
            if way.column in leading and not any(_is_lengthy(other, query, known) for other in way.others):
                yield way


def _is_bare_null_test(condition: Any) -> bool:
    if condition.GetType().Name != "BooleanIsNullExpression":
        return False
    kind: str = condition.Expression.GetType().Name
    return kind == "ColumnReferenceExpression"


def _is_lengthy(expression: Any, query: Query, known: _Known) -> bool:
    kind = expression.GetType().Name
    if kind == "VariableReference":
        return ("", str(expression.Name)) in known.lengthy
    owner = _owner(expression, query)
    if owner is None or owner not in query.tables:
        return False
    node = query.tables[owner].node
    kind = node.GetType().Name
    if kind == "VariableTableReference":
        return (str(node.Variable.Name), _last(expression)) in known.lengthy
    if kind != "OpenJsonTableReference":
        return False
    return (_json_name(node), _last(expression)) in known.lengthy
