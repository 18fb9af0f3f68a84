#!/usr/bin/env python3
"""Draws a part of a joined trace (`catchment trace DIR`) as the figure of docs/watching.md.

    docs/figures/plot_timeline.py trace/trace.json MILLISECONDS >docs/figures/timeline.svg

The part has this length, and begins with a step of worker 0 in the middle of the trace.
"""
import collections
import json
import sys

WIDTH, LEFT, ROW, GAP = 960, 190, 18, 10
COLORS = {"step": "#e8e8e8", "forward": "#7fb3d5", "backward": "#2e75b6", "wait": "#e3a857",
          "data": "#c0c0c0",
          "network": "#9bc99b", "apply": "#b05a7a", "gate": "#f0d9a8", "pull": "#d7a8bd", "encode": "#8f7fc0"}


def rows_of(trace, begin, end):
    """Returns {(process, thread): [(begin, end, name, depth)]} of the spans in this part."""
    processes = [one["process"] for one in trace["otherData"]["processes"]]
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"]
               if e["name"] == "thread_name"}
    rows = collections.defaultdict(list)
    spans = sorted((e for e in trace["traceEvents"] if e["ph"] == "X"), key=lambda e: (e["ts"], -e["dur"]))
    for span in spans:
        first, last = span["ts"], span["ts"] + span["dur"]
        if last < begin or first > end or span["name"] in ("load", "evaluator"):
            continue
        row = rows[processes[span["pid"] - 1], threads.get((span["pid"], span["tid"]), "requests"),
                   span["tid"]]
        first, last = max(first, begin), min(last, end)
        depth = sum(1 for one in row if one[1] >= last and one[0] <= first)
        row.append((first, last, span["name"], depth))
    return rows


def draw(rows, begin, end):
    scale, y, out = (WIDTH - LEFT - 10) / (end - begin), 24, []
    for (process, thread, _), spans in sorted(rows.items(), key=lambda row: (row[0][0][::-1] > "r", row[0])):
        depth = 1 + max(span[3] for span in spans)
        out.append('<text x="%d" y="%d" text-anchor="end">%s: %s</text>' % (LEFT - 8, y + 13, process,
                                                                            thread))
        for first, last, name, level in spans:
            x, width = LEFT + (first - begin) * scale, max(0.6, (last - first) * scale)
            color = COLORS.get(name, COLORS.get(name.split()[0], "#888888"))
            out.append('<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s" stroke="white" stroke-width="0.4"><title>%s'
                       '</title></rect>' % (x, y + ROW * level, width, ROW - 1, color, name))
            if width > 6.5 * len(name):
                out.append('<text x="%.1f" y="%d" font-size="11">%s</text>' % (x + 3, y + ROW * level + 13,
                                                                               name))
        y += ROW * depth + GAP
    out.append('<text x="%d" y="14">%.1f ms</text>' % (LEFT, (end - begin) / 1000))
    return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" role="img" '
            'aria-label="Spans of the processes of a job">\n<rect width="100%%" height="100%%" fill="white"/>\n%s\n</svg>\n' %
            (WIDTH, y, "\n".join(out)))


def main():
    with open(sys.argv[1]) as file:
        trace = json.load(file)
    workers = [i + 1 for i, one in enumerate(trace["otherData"]["processes"]) if one["process"] == "worker 0"]
    steps = [e for e in trace["traceEvents"] if e["name"] == "step" and e["pid"] in workers]
    begin = steps[len(steps) // 2]["ts"] - 100
    end = begin + 1000 * float(sys.argv[2])
    sys.stdout.write(draw(rows_of(trace, begin, end), begin, end))


if __name__ == "__main__":
    main()
