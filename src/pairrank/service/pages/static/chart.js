// A small line chart in SVG: up to three lines over the same steps, a readout that follows the pointer.

import { h, s, put } from "./dom.js";

const WIDTH = 360;
const HEIGHT = 150;
const LEFT = 38;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 20;
const CLASSES = ["one", "two", "three"];

/** Round numbers that hold [low, high] in three or four steps. */
function scale(low, high) {
  if (high <= low) high = low + 1;
  const rough = (high - low) / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const ticks = [];
  for (let tick = Math.floor(low / step) * step; tick < high + step * 0.999; tick += step) ticks.push(tick);
  return ticks;
}

/**
 * Draw into `host` (which holds a legend list and an svg after the first call).
 * options: label, lines [{name, values, now?}], format(value), at(i) -> text below the cursor, from, to (limits,
 * optional). `now` is what the legend tells while nobody points; else the last value.
 */
export function lineChart(host, options) {
  const { lines, format } = options;
  const steps = Math.max(...lines.map((line) => line.values.length), 0);
  const seen = lines.flatMap((line) => line.values).filter((value) => value !== null && value !== undefined);
  const newest = lines.map((line) => line.now ?? line.values.findLast((value) => value !== null && value !== undefined) ?? null);
  const legend = h("ul", { class: "legend" });
  const svg = s("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  const told = lines.map((line, i) => `${line.name} ${newest[i] === null ? "no value" : format(newest[i])}`);
  svg.append(s("title", {}, `${options.label}; newest: ${told.join(", ")}`));
  put(host, legend, svg);
  tell(legend, lines, newest, format);
  if (seen.length === 0) {
    svg.append(s("text", { x: WIDTH / 2, y: HEIGHT / 2, "text-anchor": "middle" }, "no feedback yet"));
    return;
  }
  const ticks = scale(options.from ?? Math.min(...seen), options.to ?? Math.max(...seen));
  const low = ticks[0];
  const high = ticks.at(-1);
  const x = (i) => LEFT + (steps > 1 ? (i / (steps - 1)) * (WIDTH - LEFT - RIGHT) : (WIDTH - LEFT - RIGHT) / 2);
  const y = (value) => TOP + (1 - (value - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  for (const tick of ticks) {
    svg.append(s("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(tick), y2: y(tick) }));
    svg.append(s("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, format(tick)));
  }
  lines.forEach((line, i) => svg.append(s("path", { class: `line ${CLASSES[i]}`, d: path(line.values, x, y) })));
  if (steps === 1) lines.forEach((line, i) => dot(svg, line.values[0], i, x(0), y));
  const foot = { y: HEIGHT - 4 };
  svg.append(s("text", { ...foot, x: LEFT }, options.at(0)));
  if (steps > 1) svg.append(s("text", { ...foot, x: WIDTH - RIGHT, "text-anchor": "end" }, options.at(steps - 1)));
  followPointer(svg, { ...options, legend, steps, newest, x, y });
}

function path(values, x, y) {
  let d = "";
  let pen = "M";
  values.forEach((value, i) => {
    if (value === null || value === undefined) {
      pen = "M";
      return;
    }
    d += `${pen}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
  });
  return d;
}

function dot(parent, value, i, x, y) {
  if (value !== null && value !== undefined) {
    parent.append(s("circle", { class: `dot ${CLASSES[i]}`, cx: x, cy: y(value), r: 4 }));
  }
}

function tell(legend, lines, values, format) {
  put(
    legend,
    lines.map((line, i) =>
      h("li", { class: CLASSES[i] }, `${line.name} `, h("b", {}, values[i] === null ? "–" : format(values[i]))),
    ),
  );
}

function followPointer(svg, { lines, format, legend, steps, newest, x, y, at }) {
  const cursor = s("g", {});
  svg.append(cursor);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const place = ((event.clientX - box.left) / box.width) * WIDTH;
    const i = Math.max(0, Math.min(steps - 1, Math.round(((place - LEFT) / (WIDTH - LEFT - RIGHT)) * (steps - 1) || 0)));
    const values = lines.map((line) => line.values[i] ?? null);
    put(cursor, s("line", { class: "cross", x1: x(i), x2: x(i), y1: TOP, y2: HEIGHT - BOTTOM }));
    values.forEach((value, n) => dot(cursor, value, n, x(i), y));
    if (i > 0 && i < steps - 1) {
      const anchor = i < steps / 2 ? "start" : "end";
      cursor.append(s("text", { x: x(i), y: HEIGHT - 4, "text-anchor": anchor }, at(i)));
    }
    tell(legend, lines, values, format);
  });
  svg.addEventListener("pointerleave", () => {
    put(cursor);
    tell(legend, lines, newest, format);
  });
}
