#!/usr/bin/env python3
"""A picture of a page that `catchment compare` wrote, as an SVG file of its own, on white.

    docs/figures/page_picture.py out-compare/report.html "Test accuracy over time, 4 workers" > docs/figures/compare_mnist_mlp.svg
"""

import html
import re
import sys


def main():
    page = open(sys.argv[1], encoding="utf-8").read()
    for picture in re.findall(r"<svg .*?</svg>\n", page, re.DOTALL):
        head, body = picture.split("\n", 1)
        if f'aria-label="{html.escape(sys.argv[2])}"' in head:
            print(head, '<rect width="100%" height="100%" fill="#ffffff"/>', body, sep="\n", end="")
            return
    sys.exit(f"{sys.argv[1]} has no picture {sys.argv[2]!r}")


main()
