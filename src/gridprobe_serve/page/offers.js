// What a question would take, before it is asked: a row for each effort and for all frames, and what exceeds a limit.

import * as api from "./api.js";
import { byId, el, show } from "./dom.js";
import { taken } from "./words.js";

const NAMES = { quick: "Quick", auto: "Automatic", full: "Full", focus: "Focus" };
const ALL = "all frames";

let latest = 0;
let whole = null; // TFLOPs of all frames, which shares of compute are of

// The settings for a limit such as "frames:8", "share:0.1" or "seconds:15".
export function limitSettings(value) {
  const [kind, amount] = value.split(":");
  if (kind === "frames") return { frames: Number(amount) };
  if (kind === "seconds") return { frames: "auto", max_seconds: Number(amount) };
  if (kind === "share" && whole) return { frames: "auto", max_tflops: Number(amount) * whole };
  return { frames: "auto" };
}

// Asks the server again; of several requests only the last one is shown.
export async function update(session, asked) {
  const number = ++latest;
  let found = [];
  try {
    const { question, options } = asked();
    const shown = options.length === 1 ? { question: "", options: [] } : { question, options };
    const ask = () => api.post(`/sessions/${session}/plan`, { ...shown, settings: asked().settings });
    found = (await ask()).offers;
    const known = whole;
    whole = found.find((each) => each.name === ALL)?.tflops[1] ?? null;
    if (whole !== known && byId("limit").value.startsWith("share")) found = (await ask()).offers;
  } catch { /* the question itself will say what is wrong */ }
  if (number === latest) draw(found, asked().settings.effort);
}

export function forget() {
  latest += 1;
  whole = null;
  draw([], "");
}

function draw(found, effort) {
  show(byId("offers"), found.length > 0);
  for (const option of byId("limit").querySelectorAll("[value^=share]")) option.disabled = !found.length;
  const timed = found.some((each) => each.seconds);
  const rows = found.map((each) => {
    const chosen = each.name === effort;
    const count = range(each.frames, String);
    return el("tr", { class: chosen ? "chosen" : "", "aria-current": chosen ? "true" : null },
      el("th", { scope: "row" }, NAMES[each.name] ?? "All frames"),
      el("td", {}, count),
      el("td", {}, each.tokens[1] ? each.share_words : "–"),
      timed ? el("td", {}, each.seconds ? range(each.seconds, taken).replace(" s–", "–") : "–") : null);
  });
  const head = ["", "frames", "compute", timed ? "time" : null].filter((each) => each !== null);
  byId("offers-table").replaceChildren(
    el("thead", {}, el("tr", {}, ...head.map((each) => el("th", { scope: "col" }, each)))), el("tbody", {}, ...rows));
  const offer = found.find((each) => each.name === effort);
  byId("offers-over").textContent = offer?.over ? plain(`${NAMES[effort] ?? "This"} ${offer.over}`) : "";
}

const plain = (words) => words.replace(/--max-(\w+) \S+/g, "the limit of $1");

const range = ([least, most], words) => (words(least) === words(most) ? words(least) : `${words(least)}–${words(most)}`);
