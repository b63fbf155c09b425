// The form: what it says, and filling it from a link.

import { byId, el, show } from "./dom.js";
import { limitSettings } from "./offers.js";
import { clock, seconds, size } from "./words.js";

const SIDES = [4, 6, 8, 10, 12, 16, 20, 24, 32];

export function asked() {
  return {
    question: byId("question").value.trim(),
    options: byId("options").value.split("\n").map((line) => line.trim()).filter(Boolean),
    settings: {
      effort: byId("effort").value,
      ...limitSettings(byId("limit").value),
      k: Number(byId("side").value),
      probes: byId("probes").value,
      ...part(),
    },
    limit: byId("limit").value,
    map: byId("map").checked,
  };
}

// The part of the video that is looked at; nothing for the whole one.
function part() {
  const [start, end] = ["start", "end"].map((id) => seconds(byId(id).value));
  return start === null && end === null ? {} : { window: [start ?? 0, end] };
}

export function only(window) {
  byId("start").value = window ? clock(window[0]) : "";
  byId("end").value = window && window[1] !== null ? clock(window[1]) : "";
}

// What is wrong with the question; empty if nothing is.
export function complaint({ question, options }, hasVideo) {
  if (!hasVideo) return ["file", "Choose a video first."];
  if (!question) return ["question", "Type a question first."];
  for (const id of ["start", "end"]) {
    if (Number.isNaN(seconds(byId(id).value))) return [id, "Write times as 80, 1:20 or -30 from the end."];
  }
  if (options.length === 1) return ["options", "Give at least two options, or none for an open question."];
  if (options.length > 26) return ["options", `Give at most 26 options; these are ${options.length}.`];
  return null;
}

export function offer(info) {
  show(byId("demo"), info.demo);
  if (info.demo) byId("question").placeholder = "Pick the colour of the triangle.";
  byId("server").textContent = info.models.map((each) => each.split("@")[0]).join(" + ");
  const sides = [...new Set([...SIDES, info.k])].filter((k) => k <= info.limits.max_k).sort((a, b) => a - b);
  byId("side").replaceChildren(...sides.map((k) => el("option", { value: k, selected: k === info.k }, `${k * k} frames (${k} × ${k})`)));
}

export function offerVideos({ enabled, videos }) {
  show(byId("from-folder"), enabled && videos.length > 0);
  byId("folder").replaceChildren(el("option", { value: "" }, "Choose…"),
    ...videos.map((each) => el("option", { value: each.name, title: size(each.bytes) }, each.name)));
}

export function fill({ question = "", options = [], effort, limit, k, probes, start, end }) {
  byId("start").value = start ?? "";
  byId("end").value = end ?? "";
  byId("question").value = question;
  byId("options").value = options.join("\n");
  for (const [id, value] of Object.entries({ effort, limit, side: k, probes })) {
    const known = [...byId(id).options].some((each) => each.value === String(value));
    if (known) byId(id).value = String(value);
  }
}

export function chosen(name) {
  show(byId("chosen"), Boolean(name));
  byId("chosen").textContent = name ?? "";
  byId("drop").classList.toggle("small", Boolean(name));
}

const STAGES = { decode: "Decoding frames", features: "Looking at frames", model: "Asking the model", write: "Writing", server: "Waiting for the model's server" };

// The stage, for the status that screen readers say; the count stands beside it and is not said.
export function progress({ stage, done, total }) {
  const bar = byId("bar");
  if (total > 1 && done > 0) { bar.max = total; bar.value = done; } else bar.removeAttribute("value");
  byId("count").textContent = total > 1 ? `${done} of ${total}` : "";
  return `${STAGES[stage] ?? "Working"}…`;
}

export function say(words) {
  if (byId("status").textContent === words) return;
  byId("status").textContent = words;
  byId("count").textContent = "";
}

// A question may be asked while its video is being opened; it waits for that.
export function busy(working, opening = false) {
  show(byId("working"), working);
  show(byId("cancel"), working);
  byId("go").disabled = working && !opening;
  if (working) byId("bar").removeAttribute("value");
}
