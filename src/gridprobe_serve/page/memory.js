// What this browser remembers: earlier questions, and the view as a link.

const KEY = "gridprobe.history";
const MOST = 50;

export function history() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter((each) => each && typeof each.link === "string" && each.link.startsWith("#")) : [];
  } catch {
    return [];
  }
}

export function remember(entry) {
  store([entry, ...history().filter((each) => each.link !== entry.link)].slice(0, MOST));
}

export const forget = () => store([]);

function store(entries) {
  try { localStorage.setItem(KEY, JSON.stringify(entries)); } catch { /* full or not allowed: nothing is remembered */ }
}

// Names: v video, s session, j job, q question, o option, e effort, l limit, k grid side, p probes, a and z the part, t time.
export function toLink({ video, session, job, question, options, settings, limit, time }) {
  const found = new URLSearchParams();
  const parts = { v: video, s: session, j: job, q: question, e: settings?.effort, l: limit, k: settings?.k, p: settings?.probes, t: time, a: settings?.window?.[0], z: settings?.window?.[1] };
  for (const [name, value] of Object.entries(parts)) if (value !== undefined && value !== null && value !== "") found.set(name, value);
  for (const option of options ?? []) found.append("o", option);
  return `#${found}`;
}

export function fromLink(hash) {
  const found = new URLSearchParams(hash.slice(1));
  if (!found.get("v") && !found.get("s")) return null;
  return {
    video: found.get("v"), session: clean(found.get("s")), job: clean(found.get("j")),
    question: found.get("q") ?? "", options: found.getAll("o"),
    effort: found.get("e"), limit: found.get("l") ?? "auto", k: found.get("k"), probes: found.get("p"), start: found.get("a"), end: found.get("z"), time: Number(found.get("t")) || 0,
  };
}

// Ids go into addresses, so a link may not bring anything else.
function clean(id) {
  return /^[A-Za-z0-9_-]{1,64}$/.test(id ?? "") ? id : null;
}
