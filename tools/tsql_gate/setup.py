"""Fetches the .NET runtime and Microsoft's T-SQL libraries from the package registry, once per user.

They come inside wheels: the libraries in mssql-cli, the runtime in dotnetcore2, and the OpenSSL 1.1 that this
runtime wants in psycopg2-binary. ICU comes from the system, for the runtime insists on real cultures.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


class GateUnavailableError(Exception):
    """The gate cannot be set up here; the message says why and what would help."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A pinned wheel, for the platform it was built for whatever Python runs this."""

    requirement: str
    platform: str
    python: str
    sha256: str


LIBRARIES = Wheel(
    "mssql-cli==1.0.0",
    "manylinux1_x86_64",
    "38",
    "edb3850ab8ffa077c64270f27263f6377fdb5bd5bb5c5b4990c5fb08f49627b6",
)
RUNTIME = Wheel(
    "dotnetcore2==3.1.23",
    "manylinux1_x86_64",
    "311",
    "5f076ddc39da0c685e7de20ecb91ee81185928918ec86fbeb3bffc55dd867ab5",
)
OPENSSL = Wheel(
    "psycopg2-binary==2.9.5",
    "manylinux2014_x86_64",
    "311",
    "bcda1c84a1c533c528356da5490d464a139b6e84eb77cc0b432e38c5c6dd7882",
)
BRIDGE = ("pythonnet==3.2.1", "clr-loader==0.3.1")
ASSEMBLIES = frozenset(
    f"mssqlcli/mssqltoolsservice/bin/{name}.dll"
    for name in (
        "Microsoft.Data.Tools.Schema.Sql",
        "Microsoft.Data.Tools.Utilities",
        "Microsoft.SqlServer.ConnectionInfo",
        "Microsoft.SqlServer.Dac",
        "Microsoft.SqlServer.Dac.Extensions",
        "Microsoft.SqlServer.Dmf",
        "Microsoft.SqlServer.Management.Dmf",
        "Microsoft.SqlServer.Management.Sdk.Sfc",
        "Microsoft.SqlServer.Management.SmoMetadataProvider",
        "Microsoft.SqlServer.Smo",
        "Microsoft.SqlServer.SqlEnum",
        "Microsoft.SqlServer.SqlParser",
        "Microsoft.SqlServer.TransactSql.ScriptDom",
        "Microsoft.SqlServer.Types",
        "System.ComponentModel.Composition",
        "System.Data.SqlClient",
        "System.IO.Packaging",
        "System.Security.Permissions",
    )
)
RUNTIME_CONFIG = {
    "runtimeOptions": {
        "framework": {"name": "Microsoft.NETCore.App", "version": "3.1.0"},
        "configProperties": {"System.Globalization.Invariant": False},
    }
}


def home() -> Path:
    """The gate's folder: one per set of pinned versions and Python; a change of either starts afresh."""
    pinned = repr((LIBRARIES, RUNTIME, OPENSSL, BRIDGE, sorted(ASSEMBLIES)))
    digest = hashlib.sha256(pinned.encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "pysqlbox" / "tsql-gate" / f"{digest}-{sys.implementation.cache_tag}"


def ensure() -> tuple[Path, dict[str, str]]:
    """The folder, set up if need be, and the environment its engine runs in."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise GateUnavailableError(f"the libraries are for Linux on x86_64, not {platform.platform()}")
    icu = _icu_version()
    folder = home()
    if not folder.exists():
        _build(folder)
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": str(folder / "site"),
        "TSQL_GATE_HOME": str(folder),
        "LD_LIBRARY_PATH": str(folder / "openssl"),
        "CLR_ICU_VERSION_OVERRIDE": icu,
        "DOTNET_CLI_TELEMETRY_OPTOUT": "1",
    }
    return folder, environment


def _icu_version() -> str:
    """The newest libicu of the system, as the runtime wants it named."""
    versions = [
        int(match[1])
        for library in _libraries("libicuuc.so.*")
        if (match := re.fullmatch(r"libicuuc\.so\.(\d+)", library.name))
    ]
    if not versions:
        raise GateUnavailableError("libicu is missing (on Debian and Ubuntu a package such as libicu72)")
    return str(max(versions))


def _libraries(pattern: str) -> Iterator[Path]:
    for root in ("/usr/lib", "/lib", "/usr/lib64", "/usr/local/lib"):
        yield from Path(root).glob(pattern)
        yield from Path(root).glob(f"*-linux-gnu/{pattern}")


def _build(folder: Path) -> None:
    """Fills a temporary folder beside the final one and renames it, so that none is ever half full."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix="draft-", dir=folder.parent))
    try:
        _unpack(_download(LIBRARIES, draft), draft / "dll", ASSEMBLIES.__contains__, flat=True)
        _unpack(
            _download(RUNTIME, draft), draft, re.compile(r"dotnetcore2/bin/(host|shared)/").match, flat=False
        )
        _unpack(
            _download(OPENSSL, draft),
            draft / "openssl",
            re.compile(r"psycopg2_binary\.libs/lib(ssl|crypto)-").match,
            flat=True,
        )
        for library in sorted((draft / "openssl").iterdir()):
            (draft / "openssl" / re.sub(r"-[0-9a-f]+\.so", ".so", library.name)).symlink_to(library.name)
        _pip("install", "--target", str(draft / "site"), *BRIDGE)
        (draft / "runtimeconfig.json").write_text(json.dumps(RUNTIME_CONFIG))
        shutil.rmtree(draft / "wheels")
        try:
            draft.rename(folder)
        except OSError:
            if not folder.exists():  # otherwise another process was quicker, and its folder is as good
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _download(wheel: Wheel, draft: Path) -> Path:
    """The wheel's file, checked against its pinned hash."""
    target = draft / "wheels" / wheel.requirement.partition("==")[0]
    _pip(
        *("download", "--no-deps", "--only-binary", ":all:", "--dest", str(target)),
        *("--platform", wheel.platform, "--python-version", wheel.python, "--implementation", "cp"),
        wheel.requirement,
    )
    (path,) = target.iterdir()
    if hashlib.sha256(path.read_bytes()).hexdigest() != wheel.sha256:
        raise GateUnavailableError(f"{path.name} is not the file that was pinned: its SHA-256 differs")
    return path


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise GateUnavailableError(f"pip could not fetch {arguments[-1]}: {reason}")


def _unpack(archive: Path, target: Path, wanted: Callable[[str], object], *, flat: bool) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive) as content:
        for member in content.infolist():
            if member.is_dir() or not wanted(member.filename):
                continue
            path = target / (Path(member.filename).name if flat else member.filename)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.read(member))
