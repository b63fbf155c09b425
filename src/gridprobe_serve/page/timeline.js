// The timeline: importance and kept frames over time, with pictures below; it can be zoomed and moved.

import { el, svg } from "./dom.js";
import { clock } from "./words.js";
import { pictures } from "./api.js";

const HIGH = 52;
const MOST_PICTURES = 8;
const CLOSEST = 0.5; // seconds

export class Timeline {
  constructor(root, pick, only) {
    this.pick = pick;
    this.pictures = new Map();
    this.playhead = 0;
    const button = (text, label, act) => el("button", { type: "button", class: "tool", "aria-label": label, title: label, onclick: act }, text);
    this.toAnswer = button("To the answer", "Zoom to the answer", () => this.zoomToAnswer());
    this.moments = el("div", { class: "moments" });
    this.rail = svg("svg", { class: "rail", tabindex: 0, role: "slider", "aria-label": "Time in the video", "aria-valuemin": 0 });
    this.ends = [el("span"), el("span")];
    this.strip = el("div", { class: "strip", role: "group", "aria-label": "Frames" });
    this.note = el("p", { class: "quiet small" });
    root.append(
      this.moments, this.rail,
      el("div", { class: "ends" }, this.ends[0], el("span", { class: "tools" }, this.toAnswer,
        button("−", "Zoom out", () => this.zoom(2)), button("+", "Zoom in", () => this.zoom(0.5)),
        button("Whole", "Show the whole video", () => this.range(0, this.length)),
        button("Only this", "Ask only about the part that is shown", () => only(this.part()))), this.ends[1]),
      this.strip, this.note,
    );
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.rail);
  }

  listen() {
    this.rail.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      this.zoom((event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8, this.timeOf(event));
    }, { passive: false });
    this.rail.addEventListener("keydown", (event) => this.key(event));
    this.rail.addEventListener("pointerdown", (event) => {
      this.dragged = { x: event.clientX, from: this.from, to: this.to, moved: false };
      this.rail.setPointerCapture(event.pointerId);
    });
    this.rail.addEventListener("pointermove", (event) => this.drag(event));
    this.rail.addEventListener("pointerup", (event) => {
      if (this.dragged && !this.dragged.moved) this.pick(this.timeOf(event));
      this.dragged = null;
    });
    this.rail.addEventListener("pointercancel", () => { this.dragged = null; });
  }

  open({ session, k, times, video, window = null }) {
    if (this.session !== session || this.k !== k || String(this.window) !== String(window)) this.pictures.clear();
    Object.assign(this, { session, k, times, window, length: Math.max(times.at(-1), video?.duration || 0) || 1 });
    this.mark({});
    this.range(0, this.length);
  }

  mark({ levels = null, kept = [], main = [], moments = [], stretches = [], mark = "kept" }) {
    Object.assign(this, { levels, kept, main, found: moments, stretches, word: mark });
    this.toAnswer.hidden = !moments.length;
    if (this.from !== undefined) this.draw();
  }

  at(time) {
    this.playhead = time;
    if (!this.head) return;
    const x = this.x(time);
    this.head.setAttribute("x1", x);
    this.head.setAttribute("x2", x);
    this.rail.setAttribute("aria-valuenow", time.toFixed(1));
    this.rail.setAttribute("aria-valuetext", clock(time, true));
  }

  x(time) { return ((time - this.from) / (this.to - this.from)) * (this.rail.clientWidth || 600); }

  timeOf(event) {
    const box = this.rail.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    return this.from + share * (this.to - this.from);
  }

  range(from, to) {
    const wide = Math.min(this.length, Math.max(CLOSEST, to - from));
    this.from = Math.min(Math.max(0, from), this.length - wide);
    this.to = this.from + wide;
    this.draw();
  }

  // What is shown, in whole seconds; null is the whole video.
  part() {
    if (this.to - this.from > 0.999 * this.length) return null;
    return [Math.floor(this.from), Math.min(this.length, Math.ceil(this.to))];
  }

  zoom(factor, around = this.playhead) {
    const middle = Math.min(this.to, Math.max(this.from, around));
    this.range(middle - (middle - this.from) * factor, middle + (this.to - middle) * factor);
  }

  zoomToAnswer() {
    const start = Math.min(...this.found.map((each) => each.start));
    const end = Math.max(...this.found.map((each) => each.end));
    const margin = Math.max(4 * this.length / this.times.length, 0.25 * (end - start));
    this.range(start - margin, end + margin);
  }

  drag(event) {
    if (!this.dragged) return;
    const pixels = event.clientX - this.dragged.x;
    if (Math.abs(pixels) > 4) this.dragged.moved = true;
    if (!this.dragged.moved) return;
    const seconds = (pixels / this.rail.clientWidth) * (this.dragged.to - this.dragged.from);
    this.range(this.dragged.from - seconds, this.dragged.to - seconds);
  }

  key(event) {
    const step = (this.to - this.from) / 50;
    const moves = {
      ArrowLeft: () => this.pick(Math.max(0, this.playhead - step)),
      ArrowRight: () => this.pick(Math.min(this.length, this.playhead + step)),
      Home: () => this.pick(0),
      End: () => this.pick(this.length),
      "+": () => this.zoom(0.5),
      "=": () => this.zoom(0.5),
      "-": () => this.zoom(2),
      0: () => this.range(0, this.length),
    };
    if (!moves[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    moves[event.key]();
  }

  visible(index) { return this.times[index] >= this.from && this.times[index] <= this.to; }

  draw() {
    if (!this.times) return;
    const wide = this.rail.clientWidth || 600;
    const kept = new Set(this.kept), main = new Set(this.main);
    const apart = this.times.length > 1 ? (this.times.at(-1) - this.times[0]) / (this.times.length - 1) : this.length;
    const cell = Math.max(2, (0.8 * wide * apart) / (this.to - this.from));
    this.rail.setAttribute("viewBox", `0 0 ${wide} ${HIGH}`);
    const parts = this.stretches.map(([start, end]) => this.rect("again", this.x(start), this.x(end) - this.x(start), HIGH));
    this.times.forEach((time, index) => {
      if (!this.visible(index) || kept.has(index) || !this.levels) return;
      parts.push(this.rect("level", this.x(time) - cell / 2, cell, Math.max(2, this.levels[index] * HIGH)));
    });
    for (const index of this.kept) {
      if (!this.visible(index)) continue;
      const bar = this.rect(main.has(index) || !main.size ? "kept" : "kept aside", this.x(this.times[index]) - 4, 8, HIGH);
      bar.append(svg("title", {}, `${clock(this.times[index], true)}, ${this.word}`));
      parts.push(bar);
    }
    this.head = svg("line", { class: "head", y1: 0, y2: HIGH });
    this.rail.replaceChildren(...parts, this.head);
    this.rail.setAttribute("aria-valuemax", this.length.toFixed(1));
    const close = this.to - this.from < 20;
    this.ends[0].textContent = clock(this.from, close);
    this.ends[1].textContent = clock(this.to, close);
    this.drawMoments(wide);
    this.drawPictures(main);
    this.at(this.playhead);
  }

  rect(name, x, width, height) {
    return svg("rect", { class: name, x: x.toFixed(1), y: (HIGH - height).toFixed(1), width: Math.max(0, width).toFixed(1), height: height.toFixed(1), rx: 1.5 });
  }

  drawMoments(wide) {
    let taken = -1;
    const labels = [];
    for (const each of this.found) {
      if (each.end < this.from || each.start > this.to) continue;
      const half = each.words.length * 4.6 + 8;
      const middle = Math.min(wide - half, Math.max(half, this.x((each.start + each.end) / 2)));
      if (middle - half <= taken) continue;
      const label = el("button", { type: "button", "aria-label": `Jump to ${each.words}`, onclick: () => this.pick(each.start) }, each.words);
      label.style.left = `${middle}px`;
      labels.push(label);
      taken = middle + half;
    }
    this.moments.replaceChildren(...labels);
  }

  // Which frames have a picture: the kept ones in sight, or all if few are in sight.
  drawPictures(main) {
    const all = this.times.map((_, index) => index).filter((index) => this.visible(index));
    const kept = this.kept.filter((index) => this.visible(index));
    const wanted = all.length <= MOST_PICTURES ? all : kept;
    const level = (index) => (main.has(index) ? 2 : 0) + (this.levels?.[index] ?? 0);
    const shown = [...wanted].sort((a, b) => level(b) - level(a)).slice(0, MOST_PICTURES).sort((a, b) => a - b);
    this.strip.replaceChildren(...shown.map((index) => {
      const figure = this.picture(index);
      figure.classList.toggle("kept", this.kept.includes(index));
      figure.classList.toggle("main", main.has(index) || (!main.size && this.kept.includes(index)));
      return figure;
    }));
    this.strip.classList.toggle("few", shown.length > 0 && shown.length <= 4);
    this.note.textContent = shown.length < wanted.length ? `${shown.length} of ${wanted.length} frames, the most important` : "";
  }

  picture(index) {
    if (!this.pictures.has(index)) {
      const time = this.times[index], words = clock(time, true);
      const image = el("img", { src: pictures.frame(this.session, index, this.k, 320, this.window), alt: "", decoding: "async" });
      this.pictures.set(index, el("button", { type: "button", class: "thumb", "aria-label": `Frame at ${words}`, onclick: () => this.pick(time) }, image, el("span", {}, words)));
    }
    return this.pictures.get(index);
  }
}
