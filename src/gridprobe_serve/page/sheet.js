// The contact sheet: all frames at a glance; each can be chosen with the pointer or the arrow keys.

import { el } from "./dom.js";
import { clock, percent } from "./words.js";
import { pictures } from "./api.js";

const MOST_LABELS = 12;
const READING = "Time runs left to right, row by row.";

export class Sheet {
  constructor(root, pick) {
    this.pick = pick;
    this.image = el("img", { alt: "", decoding: "async" });
    this.cells = el("div", { class: "cells", role: "group" });
    this.rows = el("div", { class: "row-times", "aria-hidden": "true" });
    this.rowProbes = el("div", { class: "row-probes" });
    this.columnProbes = el("div", { class: "column-probes" });
    this.tiles = el("div", { class: "tiles" }, this.image, this.cells);
    this.body = el("div", { class: "sheet-body" }, this.rows, this.rowProbes, el("div", { class: "stack" }, this.columnProbes, this.tiles));
    this.caption = el("figcaption");
    root.append(el("figure", {}, this.body, this.caption));
    this.image.addEventListener("load", () => this.fit(this.image.naturalWidth / this.image.naturalHeight));
    this.cells.addEventListener("keydown", (event) => this.step(event));
    this.cells.addEventListener("click", (event) => this.chosen(event));
  }

  open({ session, k, times, video, window }) {
    const source = pictures.sheet(session, k, 1200, window);
    if (this.source === source) return;
    this.source = source;
    this.k = k;
    this.times = times;
    const rows = Math.ceil(times.length / k);
    this.fit((video?.width || 16) / (video?.height || 9));
    this.image.src = source;
    this.cells.style.gridTemplate = `repeat(${rows}, 1fr) / repeat(${k}, 1fr)`;
    this.cells.setAttribute("aria-label", `Contact sheet of ${times.length} frames; arrow keys move, Enter jumps there`);
    this.cells.replaceChildren(...times.map((_, index) => el("button", {
      type: "button", class: "cell", "data-index": index, tabindex: index ? -1 : 0,
    })));
    this.label(rows);
    this.mark({});
  }

  // The picture has as many rows as columns; empty ones at its end are cut off.
  fit(aspect) {
    this.tiles.style.aspectRatio = `${this.k * aspect} / ${Math.ceil(this.times.length / this.k)}`;
  }

  label(rows) {
    const step = Math.ceil(rows / MOST_LABELS);
    const starts = [];
    for (let row = 0; row < rows; row += step) starts.push(row);
    this.rows.replaceChildren(...starts.map((row) => {
      const span = el("span", {}, clock(this.times[row * this.k], this.times.at(-1) < 20));
      span.style.flex = Math.min(step, rows - row);
      return span;
    }));
  }

  // How bright each frame is: kept ones wholly, others by their importance.
  mark({ levels = null, kept = [], main = [], mark = "kept", words = "", rows = null, columns = null }) {
    this.probed(rows, columns);
    const chosen = new Set(kept), best = new Set(main);
    [...this.cells.children].forEach((cell, index) => {
      const level = levels?.[index];
      const bright = !chosen.size || chosen.has(index) ? 1 : levels ? 0.3 + 0.35 * level : 0.45;
      cell.style.setProperty("--shade", (1 - bright).toFixed(3));
      cell.style.transitionDelay = levels ? `${Math.floor(index / this.k) * 40}ms` : "0ms";
      cell.classList.toggle("kept", chosen.has(index));
      cell.classList.toggle("main", best.has(index));
      const importance = level === undefined || level === null ? "" : `, importance ${percent(level, 0)} of the highest`;
      const text = clock(this.times[index], true) + importance + (chosen.has(index) ? `, ${mark}` : "");
      cell.title = text;
      cell.setAttribute("aria-label", text);
    });
    this.caption.textContent = words || READING;
  }

  // How sure the probes of rows and columns were, as lights along the edges; nothing for maps of another kind.
  probed(rows, columns) {
    const lit = Boolean(rows?.length && columns?.length);
    this.body.classList.toggle("probed", lit);
    const light = (found, names) => {
      const least = Math.min(...found), most = Math.max(...found);
      return found.map((value, place) => {
        const bar = el("span", { title: `${names} ${place + 1}: ${percent(value)} sure` });
        bar.style.opacity = (0.15 + 0.85 * (most > least ? (value - least) / (most - least) : 1)).toFixed(3);
        bar.style.transitionDelay = `${place * 40}ms`;
        return bar;
      });
    };
    this.rowProbes.replaceChildren(...(lit ? light(rows, "row") : []));
    this.columnProbes.replaceChildren(...(lit ? light(columns, "column") : []));
  }

  // The frame on display at a time.
  at(time) {
    let index = this.times.findIndex((each) => each > time + 0.01) - 1;
    if (index === -2) index = this.times.length - 1;
    index = Math.max(0, index);
    if (this.current === index && this.cells.children[index]?.classList.contains("current")) return;
    this.cells.children[this.current]?.classList.remove("current");
    this.cells.children[index]?.classList.add("current");
    this.current = index;
  }

  chosen(event) {
    const index = event.target.dataset?.index;
    if (index === undefined) return;
    this.focus(Number(index));
    this.pick(this.times[Number(index)]);
  }

  step(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.k, ArrowDown: this.k };
    const from = Number(event.target.dataset?.index ?? 0);
    const last = this.times.length - 1;
    const to = event.key === "Home" ? 0 : event.key === "End" ? last : from + (moves[event.key] ?? NaN);
    if (!(to >= 0 && to <= last)) return;
    event.preventDefault();
    this.focus(to).focus();
  }

  focus(index) {
    this.cells.querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
    const cell = this.cells.children[index];
    cell.setAttribute("tabindex", "0");
    return cell;
  }
}
