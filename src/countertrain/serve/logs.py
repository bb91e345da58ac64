"""What the service writes down about itself: lines of text or of JSON, never with the values of people."""

import json
import logging
import os
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

__all__ = ["LOGS", "LogKind", "set_up_logs"]

LogKind = Literal["none", "text", "json"]
LOGS: tuple[LogKind, ...] = get_args(LogKind)


def set_up_logs(kind: LogKind) -> None:
    """Write what happens to standard error: every request as text or JSON, or with "none" only what goes wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if kind == "json" else _TextLines())
    for name, level in (("countertrain.serve", logging.INFO), ("uvicorn.error", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
    logging.getLogger("countertrain.serve.requests").setLevel(logging.WARNING if kind == "none" else logging.INFO)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # what goes wrong there is told in one sentence


class _Lines(logging.Formatter):
    """Says of an error what it is and where, not its message: that may hold what somebody has sent."""

    def formatException(self, ei: Any) -> str:
        """The kind of an error and the way to it."""
        kind, error, trace = ei
        places = [f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in traceback.extract_tb(trace)]
        said = f": {error}" if os.environ.get("COUNTERTRAIN_DEBUG") else ""
        return f"{kind.__name__}{said} at {' < '.join(reversed(places))}"


class _JsonLines(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON."""
        line = {"time": _say_time(record), "level": record.levelname.lower(), "said": record.getMessage()}
        line |= getattr(record, "facts", {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


class _TextLines(_Lines):
    def format(self, record: logging.LogRecord) -> str:
        """One line of text."""
        facts = [f"{name}={value}" for name, value in getattr(record, "facts", {}).items() if value is not None]
        error = [self.formatException(record.exc_info)] if record.exc_info else []
        return " ".join([_say_time(record), "countertrain:", record.getMessage(), *facts, *error])


def _say_time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
