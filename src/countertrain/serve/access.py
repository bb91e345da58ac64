"""Who may ask: tokens, and how many requests each has left in a minute."""

import ipaddress
import mmap
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np

__all__ = ["Access", "Rates", "check_access", "is_loopback"]

_TOKEN_LENGTH = 16  # characters that a token has at least
_MINUTE = 60


@dataclass(frozen=True)
class Access:
    """The tokens that let people ask, and the one that lets an administrator change what is served."""

    tokens: tuple[str, ...] = ()
    admin: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether there is no token, so that only this machine may ask."""
        return not self.tokens

    def find_token(self, headers: Mapping[str, str]) -> int | None:
        """The number of the token in a request, from 1; 0 where none is needed; None where it is missing or wrong."""
        if self.is_local:
            return 0
        matches = [_shows(headers, token) for token in self.tokens]  # all are compared, whichever it is
        return matches.index(True) + 1 if any(matches) else None

    def is_admin(self, headers: Mapping[str, str]) -> bool:
        """Whether a request shows the token of the administrator."""
        return self.admin is not None and _shows(headers, self.admin)


class Rates:
    """How often each token was used in this minute of the clock, by all processes together.

    Each process writes a row of its own in memory that they share, and reads all: nobody waits for anybody.
    """

    def __init__(self, per_minute: int, n_tokens: int, n_workers: int = 1) -> None:
        self._per_minute, self.worker = per_minute, 0
        memory = mmap.mmap(-1, 16 * (n_tokens + 1) * n_workers)
        self._counts = np.frombuffer(memory, dtype=np.int64).reshape(n_workers, n_tokens + 1, 2)  # (minute, requests)

    def take(self, token: int) -> int:
        """Count one more request of a token: 0, or the seconds that it has to wait."""
        if not self._per_minute:
            return 0
        minute, second = divmod(time.time(), _MINUTE)
        all_of_it, mine = self._counts[:, token], self._counts[self.worker, token]
        if mine[0] != int(minute):
            mine[:] = int(minute), 0
        if all_of_it[all_of_it[:, 0] == int(minute), 1].sum() >= self._per_minute:
            return ceil(_MINUTE - second)
        mine[1] += 1
        return 0


def check_access(host: str, access: Access) -> None:
    """Refuse to let strangers in: without a good token nobody but this machine may ask."""
    if access.is_local and not is_loopback(host):
        raise ValueError(
            f"without a token the service answers this machine only, so host must be 127.0.0.1; got {host!r}; "
            "name an environment variable that holds a token to let others ask"
        )
    for token in (*access.tokens, *([] if access.admin is None else [access.admin])):
        if len(token) < _TOKEN_LENGTH or not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError(
                f"a token must have at least {_TOKEN_LENGTH} letters, digits or signs and no spaces; "
                "`openssl rand -hex 32` makes a good one"
            )
    if access.admin in access.tokens:
        raise ValueError("the token of the administrator must be another one than those that let people ask")


def is_loopback(host: str) -> bool:
    """Whether only this machine is meant by a host name or address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _shows(headers: Mapping[str, str], token: str) -> bool:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    same = secrets.compare_digest(given.strip().encode("latin-1", "replace"), token.encode())
    return same and scheme.lower() == "bearer"
