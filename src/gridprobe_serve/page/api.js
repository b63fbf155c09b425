// Requests to the server this page came from.

const BASE = "/v1/gridprobe";
const LAST = ["answer", "error", "cancelled"];
const NAMED = ["queued", "started", "opened", "progress", "overview", "map", ...LAST];

export class Problem extends Error {
  constructor(message, { status = 0, code = "", wait = 0 } = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.wait = wait;
  }
}

export const unreachable = () => new Problem("The server cannot be reached.", { code: "unreachable" });
export const restarted = () =>
  new Problem("The server was restarted while it answered, and this question is lost.", { code: "restarted" });

function refusal(status, text, after) {
  let found = {};
  try { found = JSON.parse(text).error ?? {}; } catch { /* not ours: a proxy's page */ }
  return new Problem(found.message || `The server replied with status ${status}.`, {
    status, code: found.code ?? "", wait: Number(after) || 0,
  });
}

async function request(path, options = {}) {
  let reply;
  try {
    reply = await fetch(BASE + path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw unreachable();
  }
  if (!reply.ok) throw refusal(reply.status, await reply.text(), reply.headers.get("Retry-After"));
  return reply;
}

export const get = async (path) => (await request(path)).json();
export const blob = async (path) => (await request(path)).blob();
export const remove = (path) => request(path, { method: "DELETE" });

export async function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return (await request(path, { method: "POST", headers, body: JSON.stringify(body), signal })).json();
}

export function upload(file, { progress, signal }) {
  return new Promise((done, fail) => {
    const sent = new XMLHttpRequest();
    sent.open("POST", `${BASE}/uploads?name=${encodeURIComponent(file.name.slice(-200))}`);
    sent.setRequestHeader("Content-Type", "application/octet-stream");
    sent.upload.onprogress = (event) => progress(event.loaded, event.total);
    sent.onload = () => (sent.status === 201
      ? done(JSON.parse(sent.responseText))
      : fail(refusal(sent.status, sent.responseText, sent.getResponseHeader("Retry-After"))));
    sent.onerror = () => fail(unreachable());
    sent.onabort = () => fail(new DOMException("cancelled", "AbortError"));
    signal.addEventListener("abort", () => sent.abort());
    sent.send(file);
  });
}

// Follows a job to its end; `on` has functions by the names of events, and `lost` for a connection that broke.
export function follow(id, on, signal) {
  return new Promise((done, fail) => {
    const source = new EventSource(`${BASE}/jobs/${id}/events`);
    const end = (settle, value) => { source.close(); settle(value); };
    const cancelled = () => end(fail, new DOMException("cancelled", "AbortError"));
    signal.addEventListener("abort", cancelled);
    if (signal.aborted) cancelled();
    for (const name of NAMED) {
      source.addEventListener(name, (event) => {
        if (event.data === undefined) return; // the connection's own "error"
        const data = JSON.parse(event.data);
        if (name === "answer") end(done, data);
        else if (name === "cancelled") cancelled();
        else if (name === "error") end(fail, new Problem(data.message, { code: data.code }));
        else on[name]?.(data);
      });
    }
    source.onerror = async (event) => {
      if (event.data !== undefined) return;
      on.lost?.();
      if (source.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      try {
        const job = await get(`/jobs/${id}`);
        if (job.result) end(done, job.result);
        else end(fail, new Problem(job.error?.message ?? "The connection broke.", { code: job.error?.code ?? "lost" }));
      } catch (error) {
        end(fail, error.status === 404 ? restarted() : error);
      }
    };
  });
}

// The part of the video that was sampled, where it is not the whole one.
const part = (window) => (window ? `&start=${window[0]}${window[1] === null ? "" : `&end=${window[1]}`}` : "");

export const pictures = {
  sheet: (session, k, width, window) => `${BASE}/sessions/${session}/sheet.jpg?k=${k}&width=${width}${part(window)}`,
  frame: (session, index, k, width, window) =>
    `${BASE}/sessions/${session}/frame.jpg?index=${index}&k=${k}&width=${width}${part(window)}`,
  at: (session, time, width) => `${BASE}/sessions/${session}/frame.jpg?t=${time.toFixed(3)}&width=${width}`,
  video: (session) => `${BASE}/sessions/${session}/video`,
};
