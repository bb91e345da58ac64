"""How much may be asked of the service, and how long it may take."""

from dataclasses import dataclass, fields

__all__ = ["Limits"]

_LEAST = {"sample": 0, "window": 0, "rate": 0}


@dataclass(frozen=True)
class Limits:
    """How much one request may ask for, how long it may take, and how requests are answered together."""

    rows: int = 100
    """People in one request."""
    options: int = 3
    """Ways to another decision, per person."""
    sample: int = 300
    """People per class that may be looked at, made up unless real ones may be shown; 0: none at all."""
    body_bytes: int = 1_000_000
    seconds: float = 10.0
    """For the body of a request to arrive, and as long again for its answer."""
    waiting_rows: int = 2_000
    """People who may wait for an answer; whoever comes later is asked to try again."""
    batch_rows: int = 256
    """People who are searched for at once; 1: every request by itself."""
    window: float = 0.01
    """Seconds within which another request must arrive for the service to wait for more."""
    header_seconds: float = 10.0
    """For the head of a request to arrive, and for the handshake of TLS."""
    idle_seconds: float = 15.0
    """That a connection stays open after an answer, for the next request."""
    stop_seconds: float = 4.0
    """That requests under way have left when the service is told to stop."""
    connections: int = 1_000
    """Open at once, in each process; fewer where the system allows fewer files."""
    rate: int = 0
    """Requests that each token may make in a minute, and all together where there is no token; 0: as many as come."""

    def __post_init__(self) -> None:
        for field in fields(self):
            least = _LEAST.get(field.name, 0.001 if "seconds" in field.name else 1)
            if not getattr(self, field.name) >= least:
                raise ValueError(f"{field.name} must be at least {least}; got {getattr(self, field.name)}")
