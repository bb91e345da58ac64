"""Who wants what: what was said of it, looked at before anything is trained."""

from typing import TYPE_CHECKING

from countertrain.tables.dataset import Dataset
from countertrain.tables.labels import find_class

if TYPE_CHECKING:
    from countertrain.runs.settings import Settings

__all__ = ["check_wanted"]


def check_wanted(settings: "Settings", data: Dataset) -> None:
    """Refuse a wanted decision that is none of the classes."""
    if settings.target is not None:
        find_class(settings.target, data.classes)
