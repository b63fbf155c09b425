// How numbers and times are written; the same as in the reports.

export function clock(seconds, tenths = false) {
  const parts = tenths ? Math.round(Math.abs(seconds) * 10) : Math.floor(Math.abs(seconds)) * 10;
  const hours = Math.floor(parts / 36000);
  const minutes = Math.floor((parts % 36000) / 600);
  const rest = (parts % 600) / 10;
  const second = tenths ? rest.toFixed(1).padStart(4, "0") : String(rest).padStart(2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${second}` : `${minutes}:${second}`;
}

// Seconds of "80", "1:20" or "-30"; null of nothing, NaN of anything else.
export function seconds(text) {
  const words = text.trim();
  if (!words) return null;
  if (!/^-?(\d{1,4}:){0,2}\d{1,9}(\.\d{1,9})?$/.test(words)) return NaN;
  const total = words.replace("-", "").split(":").reduce((sum, each) => 60 * sum + Number(each), 0);
  return words.startsWith("-") ? -total : total;
}

export function percent(share, digits = 1) {
  return `${(100 * share).toFixed(digits)}%`;
}

// Never rounded to certainty.
export function sure(share) {
  return share >= 0.9995 && share < 1 ? "> 99.9%" : share > 0 && share < 0.0005 ? "< 0.1%" : percent(share);
}

export function taken(seconds) {
  return seconds < 10 ? `${seconds.toFixed(1)} s` : seconds < 120 ? `${Math.round(seconds)} s` : clock(seconds);
}

export function size(bytes) {
  const units = ["bytes", "kB", "MB", "GB"];
  let value = bytes, unit = 0;
  while (value >= 1000 && unit < 3) { value /= 1000; unit += 1; }
  return `${value >= 10 || !unit ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function faster(first, seconds) {
  const ratio = first / Math.max(seconds, 0.001);
  return ratio >= 1.5 ? `${ratio >= 10 ? Math.round(ratio) : ratio.toFixed(1)}× faster than the first` : "";
}
