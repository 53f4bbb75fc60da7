"""Starts the .NET runtime of the gate's folder and opens its assemblies to Python.

.NET names only exist once the runtime is up, so they are reached by `namespace()` and typed `Any`.
"""

from __future__ import annotations

import importlib
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any


@cache
def runtime() -> Any:
    """The `clr` module, with the runtime started."""
    home = Path(os.environ["TSQL_GATE_HOME"])
    clr_loader: Any = importlib.import_module("clr_loader")
    pythonnet: Any = importlib.import_module("pythonnet")
    pythonnet.set_runtime(
        clr_loader.get_coreclr(
            runtime_config=str(home / "runtimeconfig.json"), dotnet_root=str(home / "dotnetcore2" / "bin")
        )
    )
    sys.path.append(str(home / "dll"))
    clr: Any = importlib.import_module("clr")
    return clr


def load(*assemblies: str) -> None:
    """Adds references to assemblies below Microsoft.SqlServer."""
    for name in assemblies:
        runtime().AddReference(f"Microsoft.SqlServer.{name}")


def namespace(name: str) -> Any:
    """A .NET namespace as a module."""
    runtime()
    return importlib.import_module(name)


@cache
def instance_members() -> Any:
    """Reflection flags for the public and the private members of an instance."""
    flags = namespace("System.Reflection").BindingFlags
    return flags.Instance | flags.NonPublic | flags.Public
