#!/usr/bin/env python3
"""Turns links of a bundle's pages to sources, which it does not have or keeps in python/, into their text.

deploy/bundle_links.py TREE
"""

import os
import re
import sys

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!\w+:)([^)#\s]+)(?:#[^)\s]*)?\)")


def settle_links(path):
    """Replaces the page if it has such links."""

    def settle(link):
        target = os.path.join(os.path.dirname(path), link[2])
        is_page = os.path.exists(target) and "/python/catchment/" not in os.path.abspath(target)
        return link[0] if is_page else link[1]

    with open(path, encoding="utf-8") as file:
        text = file.read()
    settled = LINK.sub(settle, text)
    if settled != text:
        with open(path, "w", encoding="utf-8") as file:
            file.write(settled)


for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        if name.endswith(".md"):
            settle_links(os.path.join(folder, name))
