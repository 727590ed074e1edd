// What each feature of an additive model adds to the score: a curve with its band of doubt, and marks where documents are.

import { h, s, put, fixed } from "./dom.js";

const WIDTH = 240;
const HEIGHT = 110;
const LEFT = 34;
const RIGHT = 6;
const TOP = 6;
const BOTTOM = 24;

/** functions: [{name, x, value, deviation?, reference, missing?, documents}], all drawn to one scale of scores. */
export function drawFunctions(host, functions) {
  const ends = functions.flatMap((f) => f.value.flatMap((v, i) => [v - (f.deviation?.[i] ?? 0), v + (f.deviation?.[i] ?? 0)]));
  const low = Math.min(0, ...ends);
  const high = Math.max(low + 1e-9, ...ends);
  const y = (value) => TOP + (1 - (value - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  put(host, functions.map((f) => h("li", {}, h("span", { class: "feature", title: f.name }, f.name), curve(f, low, high, y), absent(f))));
}

function curve(f, low, high, y) {
  const [from, to] = [f.x[0], f.x.at(-1)];
  const x = (value) => LEFT + ((value - from) / (to - from || 1)) * (WIDTH - LEFT - RIGHT);
  const line = (values) => values.map((value, i) => `${x(f.x[i]).toFixed(1)} ${y(value).toFixed(1)}`);
  const best = f.value.indexOf(Math.max(...f.value));
  const worst = f.value.indexOf(Math.min(...f.value));
  const svg = s("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  svg.append(s("title", {}, `${f.name}: ${fixed(f.value[worst])} at ${short(f.x[worst])}, ${fixed(f.value[best])} at ${short(f.x[best])}`));
  svg.append(s("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(0), y2: y(0) }));
  if (f.deviation) {
    const upper = line(f.value.map((value, i) => value + f.deviation[i]));
    const lower = line(f.value.map((value, i) => value - f.deviation[i])).reverse();
    svg.append(s("path", { class: "band", d: `M${[...upper, ...lower].join("L")}Z` }));
  }
  svg.append(s("path", { class: "line one", d: `M${line(f.value).join("L")}` }));
  for (const value of f.documents) {
    svg.append(s("line", { class: "mark", x1: x(value), x2: x(value), y1: HEIGHT - BOTTOM + 2, y2: HEIGHT - BOTTOM + 8 }));
  }
  for (const tick of new Set([low, 0, high])) {
    const far = tick === 0 || Math.abs(y(tick) - y(0)) > 11;
    if (far) svg.append(s("text", { x: LEFT - 4, y: y(tick) + 4, "text-anchor": "end" }, fixed(tick, 1)));
  }
  svg.append(s("text", { x: LEFT, y: HEIGHT - 3 }, short(from)));
  svg.append(s("text", { x: WIDTH - RIGHT, y: HEIGHT - 3, "text-anchor": "end" }, short(to)));
  return svg;
}

/** What a missing value adds, where the model has a weight for it. */
function absent(f) {
  if (!f.missing) return null;
  const spread = f.missing.deviation === null ? "" : ` ± ${fixed(f.missing.deviation)}`;
  return h("span", { class: "muted" }, `missing: ${fixed(f.missing.value)}${spread}`);
}

/** A number in three digits or so. */
const short = (value) => String(Number(value.toPrecision(3))).replace("-", "−");
