// Weights as bars from a common middle, heaviest first, each with one standard deviation to either side.

import { h, s, put, fixed } from "./dom.js";

const HALF = 100;
const before = new WeakMap(); // host -> weights drawn last, to show which have moved

/** features: [{name, weight, deviation, explanation?}]; null where the model has no weights. */
export function drawWeights(host, features) {
  if (!features || features.length === 0) {
    put(host, h("li", { class: "empty" }, "This model has no weights to show."));
    return;
  }
  const reach = Math.max(...features.map((f) => Math.abs(f.weight) + (f.deviation ?? 0)), 1e-9);
  const last = before.get(host) ?? new Map();
  put(host, features.map((feature) => row(feature, reach, last)));
  before.set(host, new Map(features.map((f) => [f.name, f.weight])));
}

function row(feature, reach, last) {
  const { name, weight, deviation } = feature;
  const at = (value) => HALF + (value / reach) * (HALF - 4);
  const svg = s("svg", { viewBox: `0 0 ${2 * HALF} 20`, preserveAspectRatio: "none", "aria-hidden": "true" });
  svg.append(s("line", { class: "axis", x1: HALF, x2: HALF, y1: 0, y2: 20, "vector-effect": "non-scaling-stroke" }));
  const [left, right] = [Math.min(at(0), at(weight)), Math.max(at(0), at(weight))];
  svg.append(s("rect", { class: weight < 0 ? "bar minus" : "bar", x: left, y: 5, width: right - left, height: 10 }));
  if (deviation !== null && deviation !== undefined) {
    const span = { x1: at(weight - deviation), x2: at(weight + deviation), y1: 10, y2: 10 };
    svg.append(s("line", { class: "whisker", ...span, "vector-effect": "non-scaling-stroke" }));
  }
  const spread = deviation === null || deviation === undefined ? "" : ` ± ${fixed(deviation)}`;
  const title = `${name}: ${feature.explanation ? `${feature.explanation}. ` : ""}Weight ${fixed(weight)}${spread}`;
  const moved = last.size > 0 && Math.abs((last.get(name) ?? 0) - weight) > 0.005 * reach;
  return h(
    "li",
    { title, class: moved ? "moved" : null },
    h("span", { class: "feature" }, name),
    svg,
    h("span", { class: "value" }, fixed(weight), h("span", { class: "away" }, spread)),
  );
}
