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
.options + .source { margin: 8px 12px; }
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
.headline { margin: 0; font-size: 1.15rem; overflow-wrap: anywhere; }
.headline strong { font-size: 2rem; line-height: 1.2; color: var(--accent);
  margin-right: .4rem; } .headline .note { font-size: 1rem; }
.headline.long strong { font-size: 1.25rem; }
.where { margin: 6px 0 18px; font-size: 1.3rem; line-height: 1.35; }
section p { margin: 0 0 6px; overflow-wrap: anywhere; } .bill { max-width: 460px; }
.warnings { background: var(--warn-ground); color: var(--warn); border-radius: 10px; padding: 10px 16px;
  margin-top: 20px; }
.warnings h3 { margin: 0; color: inherit; } 
.warnings ul { margin: 4px 0 0; padding-left: 18px; overflow-wrap: anywhere; }
.timeline { margin: 0 0 22px; } .timeline svg { display: block; width: 100%; height: 46px; background: var(--track);
  border-radius: 5px; } .timeline .level { fill: var(--quiet); opacity: .55; } .timeline .kept { fill: var(--accent); }
.timeline .again { fill: var(--accent); opacity: .18; }
.moments { position: relative; height: 1.6rem; color: var(--accent); font-weight: 600; }
.moments span { position: absolute; white-space: nowrap; }
.ends { display: flex; justify-content: space-between; margin-top: 3px; }
.timeline, .sheet, .frames { font-variant-numeric: tabular-nums; }
.sheet { margin: 22px 0 0; } .sheet > figcaption { margin-top: 8px; }
.sheet-body { display: flex; background: #101218; border-radius: 10px; padding: 8px; }
.row-times { display: flex; flex-direction: column; color: #a0a6b3; font-size: .75rem; line-height: 1;
  padding-right: 8px; }
.row-times span { display: flex; align-items: center; justify-content: flex-end; min-height: 0; }
.tiles { position: relative; flex: 1; min-width: 0; } .tiles img { display: block; width: 100%; }
.cells { position: absolute; inset: 0; display: grid; } .cells span:hover { outline: 2px solid #fff; }
.frames { display: grid; gap: 10px; grid-template-columns: repeat(auto-fill, minmax(max(130px, 22%), 1fr)); }
.frames.few { grid-template-columns: repeat(auto-fit, minmax(min(100%, 280px), 1fr)); }
.frames figure { margin: 0; } .frames img { display: block; width: 100%; height: auto; border-radius: 6px;
  border: 3px solid transparent; }
.frames .main img { border-color: var(--accent); } .frames .main figcaption { color: var(--ink); font-weight: 600; }
.frames figcaption { margin-top: 2px; }
.scroll { overflow-x: auto; } .scroll td { white-space: nowrap; } .overview td { white-space: normal; }
.overview :is(td:nth-child(3), td:nth-child(5)) { white-space: nowrap; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; width: 100%; }
th, td { padding: 6px 10px; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
th { font-weight: 500; } thead th { color: var(--quiet); }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
.overview th, .overview td { text-align: left; }
.pairs td { overflow-wrap: anywhere; }
summary { font-size: .8rem; letter-spacing: .06em; text-transform: uppercase; color: var(--quiet); margin: 30px 0 10px;
  cursor: pointer; font-weight: 700; }
@media (max-width: 640px) { body { padding: 10px 8px 32px; } article, .overview { padding: 16px 14px; }
  h2 { font-size: 1.1rem; margin-bottom: 10px; } .headline strong { font-size: 1.6rem; } .where { font-size: 1.1rem; }
  .row-times { font-size: .62rem; padding-right: 4px; } .sheet-body { padding: 5px; }
  .overview thead { display: none; }
  .overview tr { display: block; padding: 10px 0; border-bottom: 1px solid var(--line); }
  .overview tbody th, .overview td { display: block; border: 0; padding: 1px 0; }
  .overview td::before { content: attr(data-head) ": "; color: var(--quiet); } }
@media print { article { break-inside: avoid-page; border: 0; } }
"""
).replace("MARK", hex_colour(MARK))
