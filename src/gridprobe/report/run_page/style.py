"""The stylesheet of a run page; it extends that of an answer page."""

__all__ = ["RUN_STYLE"]

# The run colours are those of Okabe and Ito, which are distinct with any colour vision; darker in the light scheme.
RUN_STYLE = """
:root { --kept: #0b63a8; --accuracy: #b3261e; --shade: #5d637018; --run-0: #0b63a8; --run-1: #b04a00; --run-2: #00735a;
  --run-3: #a03e7c; --run-4: #7a6000; --run-5: #4b4f8f; }
@media (prefers-color-scheme: dark) { :root { --kept: #6cc0f5; --accuracy: #ff8a80; --shade: #a0a6b31f;
  --run-0: #6cc0f5; --run-1: #f5a35c; --run-2: #3fd0a5; --run-3: #e79cc8; --run-4: #e8d44d; --run-5: #aab0ff; } }
.run-0 { --run: var(--run-0); } .run-1 { --run: var(--run-1); } .run-2 { --run: var(--run-2); }
.run-3 { --run: var(--run-3); } .run-4 { --run: var(--run-4); } .run-5 { --run: var(--run-5); }
article > h3:first-child { margin-top: 0; }
.cards { display: grid; gap: 16px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 220px), 1fr));
  margin-top: 16px; }
.card { border: 1px solid var(--line); border-top: 4px solid var(--run); border-radius: 12px; padding: 14px 18px; }
.card h2 { font-size: 1.05rem; margin: 0; } .card ul { list-style: none; margin: 0; padding: 0; font-size: .88rem; }
.card .big { font-size: 2.6rem; line-height: 1.1; font-weight: 650; margin: 10px 0 6px; letter-spacing: -.02em;
  font-variant-numeric: tabular-nums; } .card .big small { font-size: 1.2rem; color: var(--quiet); margin-left: 2px; }
.figures { display: grid; gap: 20px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); }
.figures figure { margin: 0; } .figures figcaption { text-align: center; overflow-wrap: anywhere; }
.lack { color: var(--quiet); border: 1px dashed var(--line); border-radius: 10px; padding: 24px; margin: 0;
  align-self: start; }
.plot { display: block; width: 100%; height: auto; } .plot text { fill: var(--quiet); font-size: 12px;
  font-variant-numeric: tabular-nums; } .plot .name { fill: var(--run); font-weight: 600; font-size: 13px;
  paint-order: stroke; stroke: var(--card); stroke-width: 3px; stroke-linejoin: round; }
.plot .gridline { stroke: var(--line); } .plot .axis { stroke: var(--quiet); }
.plot .reference { stroke: var(--quiet); stroke-dasharray: 3 4; } .plot .dominated { fill: var(--shade); }
.plot .mark { fill: var(--run); stroke: var(--card); stroke-width: 2; }
.plot .front { fill: none; stroke: var(--ink); stroke-width: 2; stroke-linejoin: round; opacity: .7; }
.plot .best { stroke: var(--ink); }
.plot .whisker { stroke: var(--run); stroke-width: 2; } .plot .faint { opacity: .3; }
.plot .bar { fill: var(--run); } .plot .density { fill: var(--track); }
.plot .kept-line, .plot .accuracy-line { fill: none; stroke: var(--kept); stroke-width: 3; stroke-linejoin: round; }
.plot .accuracy-line { stroke: var(--accuracy); stroke-dasharray: 8 4; }
.plot .kept-ink { fill: var(--kept); } .plot .accuracy-ink { fill: var(--accuracy); }
.kept-key { color: var(--kept); font-weight: 600; } .accuracy-key { color: var(--accuracy); font-weight: 600; }
.tables .names-2 :is(td, th):nth-child(2) { text-align: left; } .tables th { white-space: nowrap; }
.filters { display: flex; flex-wrap: wrap; gap: 10px; align-items: end; }
.filters label { display: grid; gap: 3px; font-size: .78rem; color: var(--quiet); flex: 0 1 auto; min-width: 0; }
.filters label.wide { flex: 1 1 240px; } .filters select { max-width: 100%; }
.filters input, .filters select, .filters button, .more { font: inherit; font-size: .92rem; color: var(--ink);
  min-height: 38px; background: var(--ground); border: 1px solid var(--line); border-radius: 8px; padding: 6px 10px;
  width: 100%; }
.filters button, .more { width: auto; cursor: pointer; }
.more { display: block; margin: 16px auto 0; padding: 8px 22px; }
.more[hidden] { display: none; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
.legend-runs { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 14px 0 6px; padding: 0;
  font-size: .85rem; } .pip { display: inline-block; width: 11px; height: 11px; border-radius: 3px;
  background: var(--run); margin-right: 6px; }
.questions { list-style: none; margin: 10px 0 0; padding: 0; border-top: 1px solid var(--line); }
.questions > li { border-bottom: 1px solid var(--line); }
.row { display: grid; grid-template-columns: auto 44px minmax(0, 1fr); gap: 12px; align-items: center; width: 100%;
  font: inherit; color: inherit; text-align: left; background: none; border: 0; padding: 10px 6px; cursor: pointer; }
.row:hover { background: var(--track); } .row:focus-visible { outline-offset: -3px; }
.row canvas, .row .none { width: 44px; height: 44px; border-radius: 5px; image-rendering: pixelated; display: block; }
.row .none { background: var(--track); } .row .text { overflow: hidden; display: -webkit-box; -webkit-line-clamp: 2;
  -webkit-box-orient: vertical; overflow-wrap: anywhere; line-height: 1.35; }
.row[aria-expanded="true"] .text { display: block; font-weight: 600; }
.row .id { color: var(--quiet); font-size: .78rem; overflow-wrap: anywhere; display: block; }
.tally { color: var(--quiet); font-size: .8rem; width: 4.2rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.marks { display: grid; gap: 4px; } .badge { display: inline-grid; place-items: center; width: 22px; height: 22px;
  border-radius: 6px; font-size: .8rem; font-weight: 700; border-left: 4px solid var(--run); background: var(--track); }
.badge.right, .verdict.right { color: var(--right); } .badge.wrong, .verdict.wrong { color: var(--wrong); }
.badge.failed, .verdict.failed { color: var(--warn); } .badge.missing, .verdict.missing { color: var(--quiet); }
.verdict { font-weight: 600; } .detail { padding: 4px 6px 24px; }
.detail .options { border: 1px solid var(--line); border-radius: 10px; padding: 4px 14px; margin-top: 10px; }
.detail .options li { padding: 6px 0; grid-template-columns: 1.4rem minmax(0, 1fr) minmax(0, 300px); border: 0;
  border-radius: 0; align-items: center; } .detail .options li + li { border-top: 1px solid var(--line); }
.detail .options .gold .text { font-weight: 650; } .bars { display: grid; gap: 2px; }
.bars div { display: grid; grid-template-columns: minmax(0, 1fr) 4.2rem; gap: 8px; align-items: center; }
.detail .bars .bar { height: 7px; margin: 0; grid-column: auto; }
.detail .bars .bar span { background: var(--run); opacity: .55; }
.detail .bars .picked .bar span { opacity: 1; }
.bars .percent { font-size: .8rem; text-align: right; white-space: nowrap; }
.bars .picked .percent { font-weight: 700; color: var(--run); }
.panels { display: grid; gap: 18px; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 380px), 1fr)); margin-top: 18px; }
.panel { border: 1px solid var(--line); border-left: 4px solid var(--run); border-radius: 10px; padding: 12px 16px;
  min-width: 0; } .panel h4 { margin: 0 0 2px; font-size: .95rem; overflow-wrap: anywhere; }
.panel p { margin: 2px 0 8px; font-size: .85rem; color: var(--quiet); overflow-wrap: anywhere; }
.map { margin: 0; } .map figcaption { margin-top: 8px; } .map svg { display: block; max-width: 100%; height: auto; }
.map text { fill: var(--quiet); font-size: 12px; font-variant-numeric: tabular-nums; }
.map .level { fill: var(--quiet); opacity: .55; } .map .framed { stroke: var(--accent); stroke-width: 3; }
.panel .said { font-size: 1rem; color: var(--ink); } .panel .where { font-size: .95rem; color: var(--ink); }
.panel details { font-size: .85rem; } .panel .fine { columns: 2; list-style: none; padding: 0; }
.map .rail { fill: var(--track); } .map .kept { fill: var(--accent); }
.map .cell:hover { stroke: var(--ink); stroke-width: 3; }
.panel .map svg { width: 100%; }
.panel .map text { font-size: 11px; } .panel .frames { grid-template-columns: repeat(auto-fill, minmax(88px, 1fr));
  gap: 8px; margin: 10px 0; } .panel .fault { color: var(--wrong); }
.about summary:first-child { margin-top: 0; } .about .warnings { margin-top: 0; }
@media (max-width: 640px) { .detail .options li { grid-template-columns: 1.4rem minmax(0, 1fr); }
  .detail .bars { grid-column: 2; margin-top: 4px; } .plot text { font-size: 15px; }
  .plot .name { font-size: 16px; } .filters label { flex: 1 1 130px; } .row { gap: 9px; padding: 9px 2px; }
  body { padding: 14px 8px 32px; } .card .big { font-size: 2.2rem; } .panel { padding: 10px 12px; } }
@media print { .filters, .more { display: none; } }
"""
