// The page: opening a video, asking about it, and showing what is found on the way.

import * as api from "./api.js";
import * as answer from "./answer.js";
import * as form from "./form.js";
import * as lists from "./lists.js";
import * as memory from "./memory.js";
import * as offers from "./offers.js";
import { byId, save, show } from "./dom.js";
import { clearProblem, countDown, showProblem } from "./problems.js";
import { Player } from "./player.js";
import { Sheet } from "./sheet.js";
import { Timeline } from "./timeline.js";
import { clock, size } from "./words.js";

const player = new Player(byId("player"), (time) => { timeline.at(time); sheet.at(time); });
const timeline = new Timeline(byId("timeline"), jump, askAbout);
const sheet = new Sheet(byId("sheet"), jump);

let video = null; // { ref, name, file, session, k, times, video }
let turns = []; // of this video
let current = null;
let work = null; // what can be cancelled: { stop, job }
let waiting = null; // a question that was asked before the video was open

function jump(time) {
  player.jump(time);
  const box = byId("player").getBoundingClientRect();
  if (box.bottom < 80 || box.top > innerHeight - 80) byId("player").scrollIntoView({ block: "center" });
}

function askAbout(part) {
  form.only(part);
  price();
  byId("question").focus();
}

// Videos.

async function choose(found) {
  if (work) await cancel();
  video = { ...found };
  turns = [];
  current = null;
  offers.forget();
  lists.conversation(turns, current, display);
  await attempt(open, () => choose(found), { opening: true });
  const wanted = waiting;
  waiting = null;
  if (wanted && video.session) await ask(wanted);
}

async function attempt(act, again, { opening = false } = {}) {
  clearProblem();
  const stop = new AbortController();
  work = { stop, opening };
  form.busy(true, opening);
  try {
    return await act(stop.signal);
  } catch (error) {
    failed(error, again);
    return null;
  } finally {
    if (work?.stop === stop) {
      work = null;
      form.busy(false);
      show(byId("upload"), false);
    }
  }
}

const FINAL = ["demo_model", "invalid_request", "too_long"]; // the same question would fail again

function failed(error, again) {
  form.say("");
  if (error.name === "AbortError") return form.say("Cancelled.");
  if (error.status === 429 || error.code === "busy") return countDown(error, again, () => form.say(""));
  if (error.code === "unusable_video") return showProblem(error, { "Choose another video": () => byId("file").click() });
  if (error.code === "restarted" || error.code === "interrupted") return showProblem(error, { "Ask again": again });
  if (FINAL.includes(error.code)) return showProblem(error);
  if (error instanceof api.Problem) return showProblem(error, { "Try again": again });
  showProblem(new api.Problem("The page made a mistake. Reload it and try again."));
  throw error;
}

async function send(signal) {
  show(byId("upload"), true);
  const progress = (done, total) => {
    byId("upload-bar").value = total ? done / total : 0;
    byId("upload-words").textContent = `Uploading ${video.file.name}: ${size(done)} of ${size(total)}`;
  };
  const found = await api.upload(video.file, { progress, signal });
  show(byId("upload"), false);
  return found.url;
}

async function open(signal) {
  form.chosen(video.name);
  if (!video.ref) video.ref = await send(signal);
  form.say("Opening the video…");
  const settings = { k: form.asked().settings.k };
  const found = await api.post("/sessions", { video: video.ref, settings }, signal);
  opened({ session: found.id, video: found.video, k: found.k, times: found.times, window: found.window, name: found.name });
  form.say("");
}

function opened(found) {
  const fresh = found.session !== video.session || found.k !== video.k || found.times.length !== video.times?.length
    || String(found.window) !== String(video.window);
  Object.assign(video, found);
  show(byId("empty"), false);
  show(byId("view"), true);
  if (!fresh) return;
  form.chosen(video.name);
  player.open(video);
  sheet.open(video);
  timeline.open(video);
  answer.clear(current?.question ?? "", about());
  price();
}

const price = () => (video?.session ? offers.update(video.session, form.asked) : offers.forget());

const about = () => [video.name, video.video?.duration ? clock(video.video.duration) : ""].filter(Boolean).join(" · ");

// A video whose session or upload is gone is opened again under the name that it was chosen by.
async function reopened(error, signal) {
  const gone = error.status === 404 || error.code === "not_found" || error.code === "restarted";
  if (!gone) throw error;
  if (video.file) video.ref = null;
  if (!video.ref && !video.file) throw new api.Problem("The server no longer has this video. Choose it again.", { code: "gone" });
  video.session = null;
  await open(signal);
}

// Questions.

async function ask(wanted = form.asked()) {
  const wrong = form.complaint(wanted, video !== null);
  if (wrong) {
    byId(wrong[0]).focus();
    return showProblem(new api.Problem(wrong[1]));
  }
  if (work) {
    if (work.opening) waiting = wanted;
    return null;
  }
  const turn = { ...wanted, compared: [] };
  await attempt(async (signal) => {
    if (!video.session) await open(signal);
    current = turn;
    begin(turn);
    turn.result = await answered(wanted, signal, watching(turn));
    turns.push(turn);
    finish(turn);
  }, () => ask(wanted));
  if (!turn.result && current === turn) answer.unanswered(byId("problem").querySelector("b")?.textContent ?? "");
  return null;
}

function begin(turn) {
  answer.clear(turn.question, about());
  sheet.mark({});
  timeline.mark({});
  byId("said-live").textContent = "";
  if (innerWidth < 1000) byId("view").scrollIntoView({ block: "start" });
}

async function answered(wanted, signal, on) {
  const body = () => ({ video: `session://${video.session}`, question: wanted.question, options: wanted.options, settings: wanted.settings, map: wanted.map });
  form.say("Asking…");
  let job;
  try {
    job = await api.post("/jobs", body());
  } catch (error) {
    await reopened(error, signal);
    job = await api.post("/jobs", body());
  }
  if (work) work.job = job.id;
  if (signal.aborted) await api.remove(`/jobs/${job.id}`);
  return api.follow(job.id, on, signal);
}

function watching(turn) {
  const waiting = ({ position }) => form.say(position ? `Waiting: ${position} before this question.` : "Waiting for the model…");
  return {
    queued: waiting,
    started: () => form.say("Looking the video over…"),
    opened: (found) => { if (current === turn) opened(found); },
    progress: (found) => form.say(form.progress(found)),
    overview: (found) => { answer.tentative(found); form.say("First impression is here; looking where the answer is…"); },
    map: (found) => {
      sheet.mark({ levels: found.levels, kept: found.indices, rows: found.row_confidence, columns: found.column_confidence });
      timeline.mark({ levels: found.levels, kept: found.indices });
      form.say("Found where to look; reading these frames…");
    },
    lost: () => form.say("The connection broke; trying to get it back…"),
  };
}

function finish(turn) {
  const { view } = turn.result;
  form.say("");
  byId("said-live").textContent = `Answer: ${view.said}, ${view.sure}; ${view.where}`;
  const link = linkOf(turn);
  memory.remember({ link, question: turn.question, said: view.said, name: video.name, when: Date.now() });
  lists.history();
  display(turn);
  price();
}

function display(turn, time) {
  current = turn;
  const { view, times, answer: found } = turn.result;
  const part = found.settings.sampling?.window ?? null;
  const shown = { k: found.selection.k ?? Math.ceil(Math.sqrt(times.length)), times, window: part };
  if (times.length !== video.times.length || String(part) !== String(video.window)) opened({ ...shown, session: video.session, video: video.video, name: video.name });
  answer.clear(turn.question, about());
  answer.final(turn);
  sheet.mark({ ...view, words: view.sheet, rows: found.selection.row_confidence, columns: found.selection.column_confidence });
  timeline.mark(view);
  timeline.range(0, timeline.length);
  lists.conversation(turns, current, display);
  const best = view.main.length ? view.moments[0].start : view.kept.length ? times[view.kept[0]] : 0;
  player.jump(time || best);
  window.history.replaceState(null, "", linkOf(turn));
}

function linkOf(turn) {
  const { question, options, settings, limit, result } = turn;
  return memory.toLink({ video: video.ref, session: video.session, job: result.job, question, options, settings, limit });
}

async function cancel() {
  const { stop, job } = work ?? {};
  waiting = null;
  form.say("Cancelling…");
  if (job) {
    try { await api.remove(`/jobs/${job}`); } catch { /* it has ended, or the server is gone: the stream says so */ }
  }
  stop?.abort();
}

async function compare(selector, name) {
  const turn = current;
  if (work || !turn?.result) return;
  const kept = turn.result.view.kept.length;
  const settings = { ...turn.settings, selector };
  if (selector === "uniform" && kept) settings.frames = kept;
  for (const name of ["effort", "max_tflops", "max_seconds"]) delete settings[name];
  await attempt(async (signal) => {
    const result = await answered({ ...turn, settings, map: false }, signal, { progress: (found) => form.say(form.progress(found)) });
    turn.compared = [...turn.compared.filter((each) => each.name !== name), { name, result }];
    form.say("");
    if (current === turn) answer.compared(turn);
  }, () => compare(selector, name));
}

// Links, downloads.

async function restore() {
  const link = memory.fromLink(location.hash);
  if (!link) return;
  if (current?.result && current.result.job === link.job) return;
  if (work) await cancel();
  form.fill(link);
  const same = video && (video.session === link.session || video.ref === link.video);
  if (!same) {
    video = { ref: link.video ?? `session://${link.session}`, name: nameOf(link.video) };
    turns = [];
  }
  await attempt(async (signal) => {
    await openLinked(link, signal);
    await showLinked(link);
  }, restore);
}

const nameOf = (ref) => (ref && !ref.includes("://") ? ref : "video");

async function openLinked(link, signal) {
  if (video.session) return;
  try {
    const found = link.session ? await api.get(`/sessions/${link.session}`) : null;
    if (!found?.k) throw new api.Problem("not open", { status: 404 });
    opened({ session: found.id, video: found.video, k: found.k, times: found.times, window: found.window, name: found.name });
  } catch (error) {
    if (error.status !== 404) throw error;
    await open(signal);
  }
}

async function showLinked(link) {
  let job = null;
  if (link.job) {
    try { job = await api.get(`/jobs/${link.job}`); } catch (error) { if (error.status !== 404) throw error; }
  }
  if (job?.result?.view && job.result.session === video.session) {
    const { question, options, limit } = link;
    const turn = turns.find((each) => each.result.job === link.job)
      ?? { question, options, settings: form.asked().settings, limit, map: true, compared: [], result: job.result };
    if (!turns.includes(turn)) turns.push(turn);
    display(turn, link.time);
    form.say("");
  } else if (link.question) {
    form.say("This question is not answered on the server any more. Press Ask to ask it again.");
    byId("go").focus();
  }
}

async function copyLink() {
  const url = new URL(linkOf(current), location.href);
  if (player.time) url.hash = `${url.hash}&t=${player.time.toFixed(1)}`;
  window.history.replaceState(null, "", url.hash);
  try {
    await navigator.clipboard.writeText(url.href);
    byId("copied").textContent = "The link is copied.";
  } catch {
    byId("copied").textContent = `The link is in the address bar: ${url.href}`;
  }
}

async function download(kind) {
  const name = `${(video.name || "video").replace(/\.[^.]*$/, "")}-answer`;
  try {
    if (kind === "json") save(new Blob([JSON.stringify(current.result.answer, null, 1)], { type: "application/json" }), `${name}.json`);
    else if (kind === "png") save(await api.blob(`/jobs/${current.result.job}/map.png`), `${name}.png`);
    else save(await api.blob(`/jobs/${current.result.job}/report.html`), `${name}.html`);
  } catch (error) {
    showProblem(error.status === 404 ? new api.Problem("The server no longer has this answer. Ask again to save it.") : error);
  }
}

// Wiring.

// Each question stands for itself: the model is not shown earlier ones.
function anotherQuestion() {
  byId("question").value = "";
  byId("options").value = "";
  byId("ask").scrollIntoView({ block: "start" });
  byId("question").focus();
}

function onFile(file) {
  if (file) choose({ file, name: file.name });
}

function wire() {
  byId("ask").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  byId("question").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); ask(); }
  });
  byId("file").addEventListener("change", (event) => { onFile(event.target.files[0]); event.target.value = ""; });
  byId("folder").addEventListener("change", (event) => {
    if (event.target.value) choose({ ref: event.target.value, name: event.target.value });
  });
  for (const id of ["effort", "limit", "side", "probes", "options", "start", "end"]) byId(id).addEventListener("change", price);
  byId("cancel").addEventListener("click", cancel);
  byId("another").addEventListener("click", anotherQuestion);
  byId("copy").addEventListener("click", copyLink);
  for (const kind of ["json", "png", "html"]) byId(`save-${kind}`).addEventListener("click", () => download(kind));
  byId("against-small").addEventListener("click", () => compare("all-small", "all frames, small"));
  byId("against-uniform").addEventListener("click", () => compare("uniform", "evenly spaced"));
  byId("forget").addEventListener("click", () => { memory.forget(); lists.history(); });
  addEventListener("hashchange", restore);
  addEventListener("dragover", (event) => { event.preventDefault(); byId("drop").classList.add("over"); });
  addEventListener("dragleave", () => byId("drop").classList.remove("over"));
  addEventListener("drop", (event) => {
    event.preventDefault();
    byId("drop").classList.remove("over");
    onFile(event.dataTransfer.files[0]);
  });
}

async function start() {
  wire();
  lists.history();
  try {
    form.offer(await api.get("/info"));
    form.offerVideos(await api.get("/videos"));
  } catch (error) {
    showProblem(error, { "Try again": () => location.reload() });
  }
  await restore();
  document.documentElement.dataset.ready = "yes";
}

start();
