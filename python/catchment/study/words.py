"""Texts that are data: the parts of a file beside the modules, each below a line "<!-- NAME: ... -->"."""

import pkgutil
import re
from typing import Dict


def parts_of(file: str) -> Dict[str, str]:
    """Returns the parts by their names."""
    text = (pkgutil.get_data("catchment.study", file) or b"").decode()
    parts = re.split(r"<!-- (\w+):.* -->\n", text)
    return dict(zip(parts[1::2], parts[2::2]))
