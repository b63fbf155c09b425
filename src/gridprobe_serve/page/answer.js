// The answer in words: headline, probabilities, how it was reached, and comparisons.

import { byId, el, show } from "./dom.js";
import { percent, sure as sureWords, taken } from "./words.js";

export function clear(question, source) {
  byId("source").textContent = source;
  byId("asked").textContent = question;
  show(byId("headline"), Boolean(question));
  for (const id of ["said", "where", "compute", "options-title", "bars", "others", "compared", "copied"]) byId(id).replaceChildren();
  byId("view").classList.remove("tentative", "answered");
  show(byId("after"), false);
  show(byId("warnings"), false);
}

function headline(said, sure) {
  byId("said").classList.toggle("medium", said.length > 18 && said.length <= 60);
  byId("said").classList.toggle("long", said.length > 60);
  byId("said").replaceChildren(el("strong", { dir: "auto" }, said), " ", el("span", {}, sure));
}

function bars(options) {
  byId("bars").classList.toggle("plain", !options.some((each) => each.label));
  byId("bars").replaceChildren(...options.map((option) => {
    const filling = el("span");
    filling.style.width = percent(option.share, 2).replace(" ", "");
    return el("li", { class: option.chosen ? "chosen" : "" },
      el("span", { class: "label" }, option.label ?? ""),
      el("span", { class: "text", dir: "auto" }, option.text),
      el("span", { class: "percent" }, option.percent),
      el("span", { class: "bar" }, filling));
  }));
}

// What the overview says, before the kept frames are read.
export function tentative({ belief, sure }) {
  const order = [...belief].sort((a, b) => b.probability - a.probability);
  if (!order.length) return;
  byId("view").classList.add("tentative");
  headline(order[0].text, sureWords(order[0].probability));
  byId("where").textContent = sure ? "The overview is sure." : "First impression, from the overview; reading closer…";
  bars(order.slice(0, 8).map((each, place) => ({
    label: each.label, text: each.text, share: each.probability, percent: sureWords(each.probability), chosen: !place,
  })));
}

// The question was cancelled or failed: what the overview said stays, as that, with the reason, which a phone shows elsewhere.
export function unanswered(reason) {
  const state = byId("said").textContent ? "First impression, from the overview; it was not read closer." : "Not answered.";
  byId("where").textContent = `${state} ${reason}`.trim();
}

export function final(turn) {
  const { view, answer } = turn.result;
  byId("view").classList.replace("tentative", "answered") || byId("view").classList.add("answered");
  headline(view.said, view.sure);
  byId("where").textContent = view.where;
  byId("compute").textContent = [view.compute, taken(answer.seconds.total)].filter(Boolean).join(" · ");
  byId("options-title").textContent = view.options_title === "Options" ? "" : view.options_title;
  bars(view.options);
  byId("others").textContent = view.others;
  byId("reached").textContent = view.reached;
  byId("stages").textContent = view.stages.join("; ");
  const rows = [["decode", "", answer.seconds.decode], ...view.bill.map((each) => [each.name, each.share, each.seconds])];
  byId("bill").replaceChildren(table(["stage", "compute", "time"], rows.map(([name, share, time]) => [name, share, taken(time)])));
  warnings(answer.warnings);
  compared(turn);
  show(byId("after"), true);
}

function warnings(found) {
  show(byId("warnings"), found.length > 0);
  byId("warnings").replaceChildren(...found.map((each) => el("li", { dir: "auto" }, each)));
}

export function compared(turn) {
  if (!turn.compared?.length) return byId("compared").replaceChildren();
  const row = (name, result) => [name, result.view.said, result.view.sure, result.view.bill.at(-1).share, taken(result.answer.seconds.total)];
  const rows = [row("this answer", turn.result), ...turn.compared.map((each) => row(each.name, each.result))];
  return byId("compared").replaceChildren(table(["frames", "answer", "sure", "compute", "time"], rows));
}

function table(head, rows) {
  const cells = (values, tag) => values.map((each, place) => el(place ? tag : "th", { scope: tag === "th" ? "col" : place ? null : "row", dir: "auto" }, each));
  return el("table", {}, el("thead", {}, el("tr", {}, ...cells(head, "th"))),
    el("tbody", {}, ...rows.map((values) => el("tr", {}, ...cells(values, "td")))));
}
