"""Pictures of `results/`, which pages show as they lie in the repository, go with the site."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_PICTURE = re.compile(r"\]\(\.\./(results/[^)\s]+\.png)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add every picture outside of docs/ that a page shows."""
    root = Path(config["config_file_path"]).parent
    for page in files.documentation_pages():
        for place in _PICTURE.findall(page.content_string):
            if place not in files.src_uris:
                files.append(File.generated(config, place, abs_src_path=str(root / place)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Pages find such a picture inside the site."""
    return _PICTURE.sub(r"](\1)", markdown)
