"""What the service lets people ask for, and who may ask."""

import ipaddress
from dataclasses import dataclass, fields

__all__ = ["Limits", "check_access", "is_loopback"]

_TOKEN_LENGTH = 16  # characters that a token has at least


@dataclass(frozen=True)
class Limits:
    """How much one request may ask for, how long it may take, and how requests are answered together."""

    rows: int = 100
    """People in one request."""
    options: int = 3
    """Ways to another decision, per person."""
    sample: int = 300
    """Real people per class that may be looked at, also as an option's nearest; 0: none at all."""
    body_bytes: int = 1_000_000
    seconds: float = 10.0
    """From the first byte of a request to its answer."""
    waiting_rows: int = 2_000
    """People who may wait for an answer; whoever comes later is asked to try again."""
    batch_rows: int = 256
    """People who are searched for at once; 1: every request by itself."""
    window: float = 0.01
    """Seconds within which another request must arrive for the service to wait for more."""

    def __post_init__(self) -> None:
        for field in fields(self):
            least = {"sample": 0, "window": 0, "seconds": 0.001}.get(field.name, 1)
            if not getattr(self, field.name) >= least:
                raise ValueError(f"{field.name} must be at least {least}; got {getattr(self, field.name)}")


def check_access(host: str, token: str | None) -> None:
    """Refuse to let strangers in: without a good token nobody but this machine may ask."""
    if token is None:
        if not is_loopback(host):
            raise ValueError(
                f"without a token the service answers this machine only, so host must be 127.0.0.1; got {host!r}; "
                "name an environment variable that holds a token to let others ask"
            )
    elif len(token) < _TOKEN_LENGTH or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(
            f"a token must have at least {_TOKEN_LENGTH} letters, digits or signs and no spaces; "
            "`openssl rand -hex 32` makes a good one"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine is meant by a host name or address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
