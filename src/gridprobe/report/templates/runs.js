"use strict";
// The list of questions: filter, expand, draw. Text from the runs is inserted only as text nodes, never as HTML.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { runs, bins, videos, questions, fields } = data;
  const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const PAGE = 60;
  const BADGES = 6; // of more runs, a question shows only how many are right
  const DARK = 38, BRIGHT = 235; // greys of the least and the most important frame
  const SHORT = 60; // seconds; times of shorter videos have tenths
  const MOST_SPANS = 4; // if more stretches matter, no moment stands out
  const WORDS = { right: "✓ right", wrong: "✗ wrong", failed: "! failed", missing: "not asked", unknown: "answered" };
  const SIGNS = { right: "✓", wrong: "✗", failed: "!", missing: "·", unknown: "?" };
  const SVG = "http://www.w3.org/2000/svg";

  // Elements.

  const element = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
  const drawn = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
  function fill(made, attributes, children) {
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }
  const quoted = (text) => element("span", { dir: "auto" }, text);

  // Results.

  function result(run, place) {
    const packed = data.results[run][place];
    if (!Array.isArray(packed)) return null;
    return Object.fromEntries(fields.map((name, i) => [name, packed[i]]));
  }
  function outcome(run, place) {
    const packed = data.results[run][place];
    if (packed === 0) return "missing";
    if (typeof packed === "string") return "failed";
    if (questions[place][3] < 0) return "unknown";
    return packed[0] === questions[place][3] ? "right" : "wrong";
  }
  function keptPlaces(found) {
    const digits = [...found.kept].reverse(), places = [];
    digits.forEach((digit, at) => {
      const bits = parseInt(digit, 16);
      for (let bit = 0; bit < 4; bit++) if (bits & (1 << bit)) places.push(4 * at + bit);
    });
    return places;
  }
  function keptTimes(found) {
    let time = 0;
    return found.times.map((step) => (time += step) / 10);
  }
  const keptCount = (found) => found.native;
  const isMapped = (found) => found.columns.length + found.scores.length > 0;
  const mapSide = (found) => found.columns.length || Math.ceil(Math.sqrt(found.pool));

  function clock(seconds, tenths = false) {
    const parts = tenths ? Math.round(Math.abs(seconds) * 10) : Math.floor(Math.abs(seconds)) * 10;
    const hours = Math.floor(parts / 36000), minutes = Math.floor(parts / 600) % 60, rest = (parts % 600) / 10;
    const front = hours ? `${hours}:${String(minutes).padStart(2, "0")}` : `${minutes}`;
    return `${seconds < 0 ? "-" : ""}${front}:${(tenths ? rest.toFixed(1) : String(rest)).padStart(tenths ? 4 : 2, "0")}`;
  }

  // Importance; levels are the same as in report/format.py.

  function scale(values) {
    let low = Math.min(...values), high = Math.max(...values);
    const lacking = data.floor * Math.max(Math.abs(low), Math.abs(high)) - (high - low);
    if (lacking > 0) [low, high] = [low - lacking * data.middle, high + lacking * (1 - data.middle)];
    return (value) => (high <= low ? data.middle : Math.min(1, Math.max(0, (value - low) / (high - low))));
  }
  const grey = (level) => Math.round(DARK + (BRIGHT - DARK) * level);
  function importance(found) {
    if (found.scores.length) return found.scores;
    const k = found.columns.length;
    return Array.from({ length: found.pool }, (_, i) => (found.rows[Math.floor(i / k)] * found.columns[i % k]) / 1e6);
  }

  // Drawings.

  function miniature(found) {
    const k = mapSide(found), rows = Math.ceil(found.pool / k), scores = importance(found), level = scale(scores);
    const canvas = element("canvas", { width: k, height: rows, "aria-hidden": "true" });
    const context = canvas.getContext("2d"), image = context.createImageData(k, rows);
    scores.forEach((value, i) => image.data.set([...Array(3).fill(grey(level(value))), 255], 4 * i));
    context.putImageData(image, 0, 0);
    return canvas;
  }

  // The frames in rows: brighter is more important, kept ones are framed.
  function contactSheet(found, length) {
    const k = mapSide(found), rows = Math.ceil(found.pool / k), side = 26;
    const scores = importance(found), level = scale(scores), short = length < SHORT;
    const times = keptTimes(found), kept = new Map(keptPlaces(found).map((place, i) => [place, times[i]]));
    const kind = data.maps[found.map] || "importance";
    const words = `${kind}: ${rows} rows and ${k} columns of frames; ${kept.size} of ${found.pool} marked`;
    const svg = drawn("svg", { role: "img", "aria-label": words, viewBox: `0 0 ${k * side} ${rows * side}` });
    scores.forEach((value, i) => svg.append(cell(i, value, level(value), kept.get(i), { k, side, short })));
    const caption = `Time runs left to right, row by row. Framed: kept; the darker, the less important (${kind}).`;
    return element("figure", { class: "map" }, svg, element("figcaption", {}, caption));
  }
  function cell(place, value, level, time, { k, side, short }) {
    const x = (place % k) * side + 2, y = Math.floor(place / k) * side + 2, kept = time !== undefined;
    const when = kept ? `, kept, ${clock(time, short)}` : "", shade = grey(level);
    const box = { class: kept ? "cell framed" : "cell", x, y, width: side - 4, height: side - 4, rx: 2, fill: `rgb(${shade} ${shade} ${shade})` };
    const words = `frame ${place + 1}${when}, importance ${value < 0.1 ? value.toPrecision(3) : value.toFixed(3)}`;
    return drawn("g", {}, drawn("title", {}, words), drawn("rect", box));
  }

  // The whole video from left to right: columns show importance, bright ones the kept frames.
  function timeline(found, length) {
    const times = keptTimes(found), kept = new Set(keptPlaces(found)), short = length < SHORT;
    const svg = drawn("svg", { role: "img", "aria-label": `timeline; ${times.length} kept`, viewBox: "0 0 400 54" });
    svg.append(drawn("rect", { class: "rail", x: 0, y: 5, width: 400, height: 26, rx: 4 }));
    const scores = isMapped(found) ? importance(found) : [], level = scale(scores.length ? scores : [0]);
    const wide = Math.max(1, (0.8 * 400) / found.pool);
    scores.forEach((value, i) => {
      const high = 26 * level(value), x = ((i + 0.5) / found.pool) * 400 - wide / 2;
      if (!kept.has(i)) svg.append(drawn("rect", { class: "level", x, y: 31 - high, width: wide, height: high }));
    });
    for (const time of times) {
      const tick = drawn("rect", { class: "kept", x: Math.min(397, (time / length) * 397), y: 5, width: 3, height: 26, rx: 1 });
      svg.append(drawn("g", {}, drawn("title", {}, `${clock(time, short)}, kept`), tick));
    }
    svg.append(drawn("text", { x: 0, y: 47 }, clock(0)), drawn("text", { x: 400, y: 47, "text-anchor": "end" }, clock(length)));
    return element("figure", { class: "map" }, svg);
  }

  // Where the answer is; the same rules as in report/view.py.
  function spans(found) {
    const places = keptPlaces(found), times = keptTimes(found), made = [];
    for (let first = 0, last; first < places.length; first = last + 1) {
      for (last = first; places[last + 1] === places[last] + 1; ) last++;
      made.push({ start: times[first], end: times[last], places: places.slice(first, last + 1) });
    }
    return made;
  }
  function mainSpans(found) {
    const scores = importance(found), level = scale(scores), all = spans(found);
    if (Math.max(...scores) - Math.min(...scores) <= data.floor * Math.max(...scores.map(Math.abs))) return [];
    const within = (limit) => all.filter((span) => Math.max(...span.places.map((place) => level(scores[place]))) >= limit);
    return [0.5, 0.8].map(within).find((some) => some.length <= MOST_SPANS) || [];
  }
  function whereWords(found, length) {
    const read = found.native && found.native < found.pool ? `read from ${found.native} of ${found.pool} frames` : found.pool > 1 ? `read from all ${found.pool} frames` : "read from the only frame";
    const main = isMapped(found) ? mainSpans(found) : [], texts = main.map((span) => [clock(span.start), clock(span.end)].join());
    const tenths = length < SHORT || new Set(texts).size < texts.length;
    const words = main.map(({ start, end }) => [...new Set([clock(start, tenths), clock(end, tenths)])].join("–"));
    if (!words.length) return isMapped(found) ? `${read}; no moment stands out` : read;
    return `${read}, mainly at ${[words.slice(0, -1).join(", "), ...words.slice(-1)].filter(Boolean).join(" and ")}`;
  }
  // The end of the timeline: the same in every run, so that the axes of one video can be compared.
  function lengthOf(place) {
    const answers = runs.map((_, run) => result(run, place)).filter(Boolean);
    return Math.max(questions[place][6] || 0, ...answers.flatMap(keptTimes)) || 1;
  }

  // One question.

  function options(place) {
    const [, , texts, gold] = questions[place];
    const found = runs.map((_, run) => result(run, place));
    return element("ul", { class: "options" }, ...texts.map((text, option) => {
      const note = option === gold ? element("span", { class: "note right" }, "right answer") : "";
      const bars = found.map((each, run) => each && share(each, run, option)).filter(Boolean);
      const words = element("span", { class: "text" }, quoted(text), " ", note);
      const label = element("span", { class: "label" }, LETTERS[option] || "?");
      const chances = element("div", { class: "bars" }, ...bars);
      return element("li", option === gold ? { class: "gold" } : {}, label, words, chances);
    }));
  }
  function share(found, run, option) {
    const part = found.shares[option] / 10, chosen = found.choice === option;
    const filled = element("span");
    filled.style.width = `${part}%`;
    const hover = `${runs[run]}: ${part.toFixed(1)}%${chosen ? ", chosen" : ""}`;
    return element("div", { class: `run-${run % 6}${chosen ? " picked" : ""}`, title: hover },
      element("span", { class: "bar" }, filled), element("span", { class: "percent" }, `${chosen ? "● " : ""}${part.toFixed(1)}%`));
  }
  function panel(run, place) {
    const fate = outcome(run, place), found = result(run, place);
    const title = element("h4", {}, quoted(runs[run]), " ", element("span", { class: `verdict ${fate}` }, WORDS[fate]));
    const made = element("section", { class: `panel run-${run % 6}` }, title);
    if (fate === "failed") made.append(element("p", { class: "fault", dir: "auto" }, data.results[run][place]));
    if (!found) return made;
    const length = lengthOf(place), said = questions[place][2][found.choice] ?? LETTERS[found.choice] ?? "?";
    made.append(element("p", { class: "said" }, element("strong", { dir: "auto" }, said), ` ${(found.confidence / 10).toFixed(1)}%`));
    if (found.doubt) made.append(element("p", { class: "doubt", dir: "auto" }, found.doubt));
    made.append(element("p", { class: "where" }, whereWords(found, length)));
    if (found.native) made.append(timeline(found, length));
    made.append(thumbnails(run, place, length < SHORT));
    if (isMapped(found)) made.append(contactSheet(found, length));
    if (found.reached) made.append(element("p", {}, found.reached));
    made.append(element("p", {}, `${found.tflops} TFLOPs · ${found.seconds} s`));
    for (const warning of found.warnings) made.append(element("p", { dir: "auto" }, `warning: ${warning}`));
    if (found.rows.length) made.append(probes(found));
    return made;
  }
  // What each row and column of frames answered, folded away.
  function probes(found) {
    const line = (name, values, first) => values.map((value, i) =>
      element("li", {}, `${name} ${i + 1}: ${(value / 1000).toFixed(3)} ${found.probes[first + i] ?? ""}`));
    return element("details", {}, element("summary", {}, "Probe confidences"), element("ul", { class: "fine" },
      ...line("row", found.rows, 0), ...line("column", found.columns, found.rows.length)));
  }
  function thumbnails(run, place, short) {
    const pictures = data.thumbnails[run][place] || [];
    return element("div", { class: "frames" }, ...pictures.map(([tenths, jpeg]) => {
      const when = clock(tenths / 10, short), source = `data:image/jpeg;base64,${jpeg}`;
      return element("figure", {}, element("img", { src: source, alt: `frame at ${when}` }), element("figcaption", {}, when));
    }));
  }
  function detail(place) {
    const [id, , , , where, video, duration] = questions[place];
    const facts = [id, videos[video], duration ? clock(duration) : "",
      ...bins.map(([name, values], i) => (where[i] < 0 ? "" : `${name}: ${values[where[i]]}`))].filter(Boolean);
    const asked = runs.map((_, run) => run).filter((run) => outcome(run, place) !== "missing");
    const panels = element("div", { class: "panels" }, ...asked.map((run) => panel(run, place)));
    const source = element("p", { class: "source", dir: "auto" }, facts.join(" · "));
    return element("div", { class: "detail", id: `detail-${place}` }, source, options(place), panels);
  }

  function tally(fates) {
    const right = fates.filter((fate) => fate === "right").length;
    return element("span", { class: "tally" }, `${right} of ${fates.length} right`);
  }
  function row(place) {
    const [id, text] = questions[place];
    const fates = runs.map((_, run) => outcome(run, place));
    const marks = element("span", { class: "marks" }, ...(runs.length > BADGES ? [tally(fates)] : fates.map((fate, run) =>
      element("span", { class: `badge ${fate} run-${run % 6}`, role: "img", "aria-label": `${runs[run]}: ${WORDS[fate]}` }, SIGNS[fate]))));
    const mapped = runs.map((_, run) => result(run, place)).find((found) => found && isMapped(found));
    const picture = mapped ? miniature(mapped) : element("span", { class: "none" });
    const words = element("span", {}, element("span", { class: "text", dir: "auto" }, text), element("span", { class: "id" }, id));
    const button = element("button", { type: "button", class: "row", "aria-expanded": "false" }, marks, picture, words);
    const item = element("li", { id: `question-${place}` }, button);
    button.addEventListener("click", () => {
      const open = item.lastChild !== button;
      button.setAttribute("aria-expanded", String(!open));
      if (open) item.lastChild.remove();
      else item.append(detail(place));
    });
    return item;
  }

  // The list.

  const list = document.getElementById("list"), more = document.getElementById("more");
  const count = document.getElementById("count"), form = document.getElementById("filters");
  let chosen = [], shown = 0, haystack = null;

  function showMore() {
    const next = chosen.slice(shown, shown + PAGE);
    list.append(...next.map(row));
    shown += next.length;
    more.hidden = shown >= chosen.length;
    more.textContent = `Show ${Math.min(PAGE, chosen.length - shown)} more of ${(chosen.length - shown).toLocaleString("en")}`;
    return list.children[shown - next.length];
  }
  function searched(place) {
    haystack ||= questions.map((q) => [q[0], q[1], ...q[2], videos[q[5]]].join("\n").toLowerCase());
    return haystack[place];
  }
  function fits(place, wanted) {
    if (wanted.bins.some((value, i) => value !== "" && questions[place][4][i] !== Number(value))) return false;
    const fates = wanted.run === "" ? runs.map((_, run) => outcome(run, place)) : [outcome(Number(wanted.run), place)];
    if (wanted.outcome === "differ" ? new Set(runs.map((_, run) => outcome(run, place))).size < 2
      : wanted.outcome && !fates.includes(wanted.outcome)) return false;
    return wanted.words.every((word) => searched(place).includes(word));
  }
  const orders = {
    sure: (found) => found.confidence, few: keptCount, many: (found) => -keptCount(found), dear: (found) => -found.tflops,
  };
  function ordered(places, order, run) {
    if (!order) return places;
    const worth = new Map(places.map((place) => {
      const found = result(run, place);
      return [place, found ? orders[order](found) : Infinity];
    }));
    return [...places].sort((a, b) => (worth.get(a) === worth.get(b) ? a - b : worth.get(a) < worth.get(b) ? -1 : 1));
  }
  function update() {
    const value = (name) => (form.elements[name] ? form.elements[name].value : "");
    const wanted = {
      run: value("run"), outcome: value("outcome"), bins: bins.map((_, i) => value(`bin-${i}`)),
      words: value("search").toLowerCase().split(/\s+/).filter(Boolean),
    };
    const found = questions.map((_, place) => place).filter((place) => fits(place, wanted));
    chosen = ordered(found, value("order"), Number(wanted.run) || 0);
    shown = 0;
    list.replaceChildren();
    showMore();
    count.textContent = `${chosen.length.toLocaleString("en")} of ${questions.length.toLocaleString("en")} questions`;
  }

  // Filters.

  function select(name, label, choices) {
    const made = element("select", { name }, ...choices.map(([value, text]) => element("option", { value }, text)));
    form.append(element("label", {}, label, made));
  }
  function build() {
    const search = element("input", { type: "search", name: "search", placeholder: "words, id or video  ( / )", autocomplete: "off" });
    form.append(element("label", { class: "wide" }, "search", search));
    const fates = [["", "any"], ["right", "right"], ["wrong", "wrong"], ["failed", "failed"], ["missing", "not asked"]];
    if (runs.length > 1) {
      fates.push(["differ", "runs differ"]);
      select("run", "run", [["", "any run"], ...runs.map((name, i) => [i, name])]);
    }
    select("outcome", "outcome", fates);
    bins.forEach(([name, values], i) => select(`bin-${i}`, name, [["", "any"], ...values.map((v, at) => [at, v])]));
    select("order", "order", [["", "as in the benchmark"], ["sure", "least sure first"], ["few", "fewest frames first"],
      ["many", "most frames first"], ["dear", "most compute first"]]);
    form.append(element("button", { type: "reset" }, "Reset"));
    let waiting = 0;
    form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(update, 80); });
    form.addEventListener("reset", () => setTimeout(update, 0));
    form.addEventListener("submit", (event) => event.preventDefault());
    more.addEventListener("click", () => { const first = showMore(); if (first) first.firstChild.focus(); });
    document.addEventListener("keydown", (event) => keys(event, search));
  }
  function keys(event, search) {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) { event.preventDefault(); search.focus(); }
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (!step || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const here = event.target.closest("#list > li");
    const there = here ? here[step] : list.firstElementChild; // from anywhere else into the list
    if (there) { event.preventDefault(); there.firstChild.focus(); }
  }

  build();
  update();
  document.documentElement.dataset.ready = "yes";
})();
