"""The environment of a worker: nothing secret of ours, and folders of its own.

A variable is dropped by its name, when one of its words (`_` and case ignored) is `token`, `key`,
`secret`, `password`, `credentials` or the like, or it is known to lead to one (an agent's socket,
a configuration of accounts); or by its value, when that is a private key, a bearer of a known kind,
or a URL with a password in it. All else is kept: PATH, LD_*, CUDA_*, PYTHON*, TRITON_*, ...
What lies in files of the user is as readable to a worker as it is to the user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_SECRET_WORDS = frozenset(
    [
        "token",
        "tokens",
        "key",
        "keys",
        "apikey",
        "apikeys",
        "accesskey",
        "secretkey",
        "secret",
        "secrets",
        "password",
        "passwords",
        "passwd",
        "passphrase",
        "pass",
        "pwd",
        "pat",
        "pin",
        "auth",
        "authorization",
        "oauth",
        "bearer",
        "credential",
        "credentials",
        "creds",
        "cookie",
        "cookies",
        "jwt",
        "dsn",
        "private",
        "signature",
        "cert",
        "askpass",
        "webhook",
    ]
)
_PARTS = ("TOKEN", "SECRET", "PASSW", "CREDENTIAL", "APIKEY", "API_KEY")
_NAMES = frozenset(
    ["SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "KUBECONFIG", "NETRC", "DOCKER_CONFIG"]
)
_NO_SECRETS = frozenset(["PWD", "OLDPWD"])
_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_", "GCP_", "VAULT_", "DBUS_")
_VALUE = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|\b[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@"
    r"|^(ghp|gho|ghs|ghu|github_pat|glpat|hf|sk|pypi|xox[abprs])[-_]\w{12,}"
    r"|^(AKIA|ASIA)[A-Z0-9]{12,}"
    r"|^eyJ[\w-]{10,}\.[\w-]{10,}\.",
    re.MULTILINE,
)


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a candidate may see."""
    return {
        name: value
        for name, value in environment.items()
        if not (_is_secret_name(name) or _VALUE.search(value))
    }


def _is_secret_name(name: str) -> bool:
    if name in _NO_SECRETS:
        return False
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    words = re.split(r"[^A-Za-z0-9]+", spaced.lower())
    upper = name.upper()
    return (
        upper in _NAMES
        or upper.startswith(_PREFIXES)
        or any(part in upper for part in _PARTS)
        or not _SECRET_WORDS.isdisjoint(words)
    )


@dataclass(frozen=True)
class WorkerFolders:
    """What one worker writes to; nobody else does."""

    root: Path

    @property
    def work(self) -> Path:
        """Its working directory."""
        return self.root / "work"

    @property
    def temporary(self) -> Path:
        """Its TMPDIR."""
        return self.root / "tmp"

    def make(self) -> None:
        """Make what is missing of them."""
        for folder in (self.work, self.temporary):
            folder.mkdir(parents=True, exist_ok=True)

    def variables(self) -> dict[str, str]:
        """Where compilers and libraries find them."""
        temporary = str(self.temporary)
        return {
            "TMPDIR": temporary,
            "TEMP": temporary,
            "TMP": temporary,
            "TRITON_CACHE_DIR": str(self.root / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.root / "inductor"),
            "TORCH_EXTENSIONS_DIR": str(self.root / "extensions"),
            "CUDA_CACHE_PATH": str(self.root / "cuda"),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no pool of processes that outlives a task
        }
