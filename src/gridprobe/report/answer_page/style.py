"""The stylesheet of the page, and the content security policy that blocks all requests."""

from gridprobe.report.colours import MARK, hex_colour

__all__ = ["POLICY", "STYLE"]

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

# Text has a contrast of at least 4.5:1 with its background in both colour schemes.
STYLE = (
    """
:root { color-scheme: light dark; --ground: #f6f6f4; --card: #fff; --ink: #1c1e24; --quiet: #5d6370; --line: #e1e2e6;
  --accent: #0b7285; --track: #eceef1; --right: #22703a; --wrong: #b3261e; --warn: #7a4a00; --warn-ground: #fff4de; }
@media (prefers-color-scheme: dark) { :root { --ground: #101218; --card: #181b22; --ink: #eceef2; --quiet: #a0a6b3;
  --line: #2b303b; --accent: MARK; --track: #262b35; --right: #7bd88f; --wrong: #ff8a80; --warn: #ffd58a;
  --warn-ground: #33290f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1080px; padding: 24px 16px 48px; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
h1 { font-size: 1.1rem; margin: 0 0 16px; color: var(--quiet); font-weight: 600; }
h2 { font-size: 1.45rem; line-height: 1.3; margin: 4px 0 18px; overflow-wrap: anywhere; }
h3 { font-size: .8rem; letter-spacing: .06em; text-transform: uppercase; color: var(--quiet); margin: 30px 0 10px; }
article, .overview { background: var(--card); border: 1px solid var(--line); border-radius: 14px; padding: 26px 30px;
  margin-bottom: 24px; }
a { color: var(--accent); }
footer, .source, .fine, figcaption { color: var(--quiet); font-size: .85rem; }
.source { margin: 0; overflow-wrap: anywhere; }
.fine { margin: 8px 0 0; padding-left: 18px; }
.options { list-style: none; margin: 0; padding: 0; }
.options li { display: grid; grid-template-columns: 1.8rem 1fr auto; column-gap: 8px; padding: 8px 12px;
  border-radius: 10px; border: 1px solid transparent; }
.options .text { overflow-wrap: anywhere; }
.options .label { color: var(--quiet); font-weight: 600; }
.options .percent { font-variant-numeric: tabular-nums; }
.options .bar { grid-column: 2 / 4; height: 6px; border-radius: 3px; background: var(--track); margin-top: 6px; }
.options .bar span { display: block; height: 100%; min-width: 2px; border-radius: 3px; background: var(--quiet); }
.options .chosen { border-color: var(--accent); font-weight: 600; }
.options .chosen .label { color: var(--accent); }
.options .chosen .bar span { background: var(--accent); }
.note { font-size: .8rem; font-weight: 600; color: var(--accent); margin-left: 6px; white-space: nowrap; }
.note.right { color: var(--right); } .note.wrong { color: var(--wrong); }
.reached { margin-top: 18px; } .reached p { margin: 0 0 6px; } .reached .bar { display: block; height: 4px;
  border-radius: 2px; background: var(--track); margin-top: 4px; min-width: 60px; }
.reached .bar span { display: block; height: 100%; min-width: 1px; border-radius: 2px; background: var(--quiet); }
.warnings { background: var(--warn-ground); color: var(--warn); border-radius: 10px; padding: 10px 16px;
  margin-top: 20px; }
.warnings h3 { margin: 0; color: inherit; } 
.warnings ul { margin: 4px 0 0; padding-left: 18px; overflow-wrap: anywhere; }
.map { margin: 0; } .map figcaption { margin-top: 8px; } .map svg { display: block; max-width: 100%; height: auto; }
.map text { fill: var(--quiet); font-size: 12px; font-variant-numeric: tabular-nums; }
.map .track { fill: var(--track); } .map .value { fill: var(--quiet); }
.map .blank { fill: none; stroke: var(--line); } .map .rail { fill: var(--track); } .map .kept { fill: var(--accent); }
.map .cell:hover { stroke: var(--ink); stroke-width: 2; }
.legend { display: inline-block; width: 120px; height: 10px; border-radius: 5px; margin: 0 6px; vertical-align: -1px;
  border: 1px solid var(--line); }
.dot { display: inline-block; width: 11px; height: 11px; border-radius: 50%; background: MARK; 
  border: 2px solid #0c1016; vertical-align: -1px; margin: 0 5px 0 18px; }
.frames { display: grid; gap: 12px; grid-template-columns: repeat(auto-fill, minmax(min(45%, 160px), 1fr)); }
.frames figure { margin: 0; } .frames img { display: block; width: 100%; height: auto; max-height: 320px;
  object-fit: contain; border-radius: 6px; background: var(--track); }
.frames figcaption { display: flex; justify-content: space-between; font-variant-numeric: tabular-nums;
  margin-top: 3px; }
.scroll { overflow-x: auto; } .scroll td { white-space: nowrap; } .overview td:nth-child(2) { white-space: normal; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; width: 100%; }
th, td { padding: 6px 10px; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th { font-weight: 500; } thead th { color: var(--quiet); }
th:first-child, td:first-child, .overview td:nth-child(2), .overview th:nth-child(2) {
  text-align: left; padding-left: 0; }
.pairs td { overflow-wrap: anywhere; }
summary { font-size: .8rem; letter-spacing: .06em; text-transform: uppercase; color: var(--quiet); margin: 30px 0 10px;
  cursor: pointer; font-weight: 700; }
@media (max-width: 640px) { article, .overview { padding: 18px 16px; }
  h2 { font-size: 1.2rem; } }
@media print { article { break-inside: avoid-page; border: 0; } }
"""
).replace("MARK", hex_colour(MARK))
