// The conversation about the open video, and the history of this browser.

import { byId, el, show } from "./dom.js";
import { faster, taken } from "./words.js";
import * as memory from "./memory.js";

export function conversation(turns, current, pick) {
  show(byId("talk-card"), turns.length > 0);
  const first = turns[0]?.result.answer.seconds.total;
  byId("talk").replaceChildren(...turns.map((turn, place) => {
    const seconds = turn.result.answer.seconds.total;
    const speed = place ? faster(first, seconds) : "";
    return el("li", {}, el("button", { type: "button", class: "turn", "aria-current": turn === current ? "true" : null, onclick: () => pick(turn) },
      el("span", { class: "q", dir: "auto" }, turn.question),
      el("span", { class: "a", dir: "auto" }, turn.result.view.said),
      el("span", { class: "quiet small" }, `${turn.result.view.where} · `, el("b", {}, taken(seconds)), speed ? `, ${speed}` : "")));
  }));
}

export function history() {
  const entries = memory.history();
  show(byId("history-card"), entries.length > 0);
  byId("history").replaceChildren(...entries.map((each) => el("li", {},
    el("a", { href: each.link }, el("span", { class: "q", dir: "auto" }, String(each.question ?? "")),
      el("span", { class: "quiet small", dir: "auto" }, [each.said, each.name].filter(Boolean).join(" · "))))));
}
