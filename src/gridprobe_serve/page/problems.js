// Errors in words that help, with buttons for what to do next.

import { byId, el, show } from "./dom.js";

const HINTS = {
  unusable_video: "This file cannot be read as a video. Try another file, or convert it to MP4.",
  too_large: "This file is too large for the server.",
  busy: "The server is busy.",
  no_key: "The server needs a key. Reload the page and give it as the password.",
  demo_model: "The built-in model of this server knows only gridworld, so it does not answer this.",
  unreachable: "Check that the server is running and that you are connected to it.",
  shutting_down: "The server is shutting down. Try again in a minute.",
  model_unavailable: "The model's server does not answer. Try again in a minute.",
};
let ticking = 0;

export function clearProblem() {
  clearInterval(ticking);
  show(byId("problem"), false);
  byId("problem").replaceChildren();
}

export function showProblem(error, actions = {}) {
  clearProblem();
  const hint = HINTS[error.code];
  const lines = hint && error.code !== "unreachable" ? [hint, error.message] : [error.message, hint];
  const [title, detail] = lines;
  const buttons = Object.entries(actions).map(([label, act]) =>
    el("button", { type: "button", onclick: () => { clearProblem(); act(); } }, label));
  byId("problem").append(
    el("p", { dir: "auto" }, el("b", {}, title)),
    detail && detail !== title ? el("p", { class: "small", dir: "auto" }, detail) : "",
    el("div", { class: "buttons" }, ...buttons));
  show(byId("problem"), true);
  byId("problem").scrollIntoView({ block: "nearest" });
}

// Counts down, then tries again; a button gives up.
export function countDown(error, again, stop) {
  let left = Math.max(1, Math.min(120, Math.ceil(error.wait || 5)));
  showProblem(error, { "Try now": again, "Give up": stop });
  const words = el("p", { class: "small", "data-countdown": "" });
  byId("problem").insertBefore(words, byId("problem").lastChild);
  const say = () => { words.textContent = `Trying again in ${left} s.`; };
  say();
  ticking = setInterval(() => {
    left -= 1;
    say();
    if (left <= 0) { clearProblem(); again(); }
  }, 1000);
}
