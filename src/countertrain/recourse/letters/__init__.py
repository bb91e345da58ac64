"""Letters to people about decisions: reasons, options, what is fixed, how to object; with a record of each."""

from countertrain.recourse.letters.owner import Owner
from countertrain.recourse.letters.write import FORMATS, write_letters

__all__ = ["FORMATS", "Owner", "write_letters"]
