"""Binds T-SQL offline with Microsoft's SqlParser, the engine behind SSMS.

It knows names: tables, columns (of table variables and types too), procedures, their parameters, built-ins.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tools.tsql_gate.engine import dotnet
from tools.tsql_gate.engine.finding import BINDER_STUBS, SYSTEM_STUBS, Finding, Source

FALSE_ALARMS = (
    # A system procedure whose parameter list is open, so that it cannot be stubbed.
    re.compile(r"Could not find stored procedure 'sys\.sp_executesql'"),
    # Stubs, for procedures that find these temporary tables made by their caller; which makes them.
    re.compile(r"already an object named '#pysqlbox_(?:doctor|metrics)'"),
)
DATABASE = "gate"
_CREATE_OR_ALTER = re.compile(r"^\s*CREATE\s+OR\s+ALTER\b", re.IGNORECASE | re.MULTILINE)
_UNREPORTED = "<first time>"


def bind(sources: Sequence[Source], schema: str, collation: str) -> Iterator[Finding]:
    """Findings over all files, bound as one database of this collation.

    The binder only knows what stands further up, while a procedure may call one that is deployed after it.
    So what can be created again comes twice, and only the second time counts.
    """
    dotnet.load(
        "SqlParser",
        "Smo",
        "ConnectionInfo",
        "Management.Sdk.Sfc",
        "Management.SmoMetadataProvider",
        "SqlEnum",
    )
    first = [(_UNREPORTED if _CREATE_OR_ALTER.search(text) else label, text) for label, text in sources]
    again = [(label, text) for label, text in sources if _CREATE_OR_ALTER.search(text)]
    script, starts = _one_script([("<system objects>", SYSTEM_STUBS + BINDER_STUBS), *first, *again])
    parser = dotnet.namespace("Microsoft.SqlServer.Management.SqlParser.Parser")
    binding = dotnet.namespace("Microsoft.SqlServer.Management.SqlParser.Binder")
    provider = dotnet.namespace("Microsoft.SqlServer.Management.SmoMetadataProvider").SmoMetadataProvider
    lists = dotnet.namespace("System.Collections.Generic")
    parsed = parser.Parser.Parse(script, parser.ParseOptions("GO", True))
    batch = lists.List[parser.ParseResult]()
    batch.Add(parsed)
    binder = binding.BinderProvider.CreateBinder(
        provider.CreateDisconnectedProvider(_offline_server(schema, collation))
    )
    binder.Bind(batch, DATABASE, binding.BindMode.Batch)
    offsets = [start for start, _ in starts]
    for error in parsed.Errors:
        message = str(error.Message).strip()
        if any(alarm.search(message) for alarm in FALSE_ALARMS):
            continue
        line = int(error.Start.LineNumber)
        start, label = starts[bisect.bisect_left(offsets, line) - 1]
        if label == _UNREPORTED:
            continue
        yield Finding(label, line - start, int(error.Start.ColumnNumber), f"binder, {collation}", message)


def _one_script(sources: Sequence[Source]) -> tuple[str, list[tuple[int, str]]]:
    """All files as one script, beyond which the binder sees no definition; and the line before each."""
    script: list[str] = []
    starts: list[tuple[int, str]] = []
    line = 0
    for label, text in sources:
        body = text.rstrip() + "\nGO\n"
        starts.append((line, label))
        script.append(body)
        line += body.count("\n")
    return "".join(script), starts


def _offline_server(schema: str, collation: str) -> Any:
    """An SMO server that answers about its (empty) databases without asking a real one."""
    system = dotnet.namespace("System")
    smo = dotnet.namespace("Microsoft.SqlServer.Management.Smo")
    common = dotnet.namespace("Microsoft.SqlServer.Management.Common")
    sfc = dotnet.namespace("Microsoft.SqlServer.Management.Sdk.Sfc")
    connection = common.ServerConnection()
    connection.ServerVersion = common.ServerVersion(15, 0, 4000)
    connection.TrueName = "offline"
    server = smo.Server(connection)
    sfc.ISfcHasConnection(server).ConnectionContext.Mode = sfc.SfcConnectionContextMode.Offline
    comparer_class = server.GetType().Assembly.GetType("Microsoft.SqlServer.Management.Smo.StringComparer")
    constructor = comparer_class.GetConstructors(dotnet.instance_members())[0]
    comparer = constructor.Invoke(system.Array[system.Object]([collation, system.Int32(1033)]))
    _set_field(server, "m_comparer", comparer)
    for name in ("master", DATABASE):
        database = smo.Database(server, name)
        _set_field(database, "m_comparer", comparer)
        server.Databases.Add(database)
        database.Collation = collation
        properties = database.Properties
        index = system.Int32(_invoke(properties, "LookupID", ("String",), "IsSystemObject"))
        _invoke(properties, "SetValue", ("Int32", "Object"), index, system.Boolean(name == "master"))
        _invoke(properties, "SetRetrieved", ("Int32", "Boolean"), index, system.Boolean(True))
    for name in ("dbo", "sys", schema):
        server.Databases[DATABASE].Schemas.Add(smo.Schema(server.Databases[DATABASE], name))
    return server


def _own_members() -> Any:
    return dotnet.instance_members() | dotnet.namespace("System.Reflection").BindingFlags.DeclaredOnly


def _classes(target: Any) -> Iterator[Any]:
    """The class of a .NET object and its bases, for private members are found on the declaring one only."""
    kind = target.GetType()
    while kind is not None:
        yield kind
        kind = kind.BaseType


def _set_field(target: Any, name: str, value: Any) -> None:
    for kind in _classes(target):
        field = kind.GetField(name, _own_members())
        if field is not None:
            field.SetValue(target, value)
            return
    raise LookupError(name)


def _invoke(target: Any, name: str, signature: tuple[str, ...], *arguments: Any) -> Any:
    system = dotnet.namespace("System")
    for kind in _classes(target):
        for method in kind.GetMethods(_own_members()):
            if (
                method.Name == name
                and tuple(p.ParameterType.Name for p in method.GetParameters()) == signature
            ):
                return method.Invoke(target, system.Array[system.Object](list(arguments)))
    raise LookupError(name)
