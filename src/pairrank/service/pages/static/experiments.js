// Experiments and launches: a client of /v1 like any other, asked again now and then.

import { $, ask, clock, fixed, h, percent, pulse, put, whole } from "./dom.js";
import { lineChart } from "./chart.js";

const PAUSE = 1500;
const GUARDS = { lists_without_a_click: "Without a click", reformulations: "Asked again" };
const cards = new Map(); // what is drawn of each experiment, so that focus and scroll stay where they are
const v1 = (name, what = "") => `v1/experiments/${encodeURIComponent(name)}${what}`;

function card(row) {
  const own = { said: h("p", { class: "lead", "aria-live": "polite" }), tiles: h("dl", { class: "tiles" }), chart: h("div", { class: "course" }), more: h("p", { class: "muted" }) };
  own.stop = h("button", { type: "button", class: "plain", onclick: () => stop(row.name) }, "Stop");
  own.card = h("section", { class: "card", "data-experiment": row.name },
    h("header", {}, h("h2", {}, row.name), h("p", {}, `${row.a} (a) against ${row.b} (b), ${row.kind}, ${percent(row.share)} of the clients of ${row.ranker}`),
      h("div", { class: "end" }, own.stop)),
    own.said, own.tiles, own.chart, own.more);
  return own;
}

function draw(row) {
  if (!cards.has(row.name)) cards.set(row.name, card(row));
  const own = cards.get(row.name);
  const signed = (value, digits = 3) => (value > 0 ? `+${fixed(value, digits)}` : fixed(value, digits));
  own.said.textContent = row.sentence;
  own.stop.hidden = row.ended !== null;
  const chance = (p) => (p < 0.0001 ? "< 0.0001" : fixed(p, 4));
  const bounds = ({ interval: [low, high] }) => `${signed(low)} to ${signed(high)}`;
  const share = ([arm, found]) => `${arm === "both" ? "" : `${arm}: `}${percent(found.interval[0])} to ${percent(found.interval[1])}`;
  // A list of a split is of one arm alone: it has a value, and nobody to win from.
  const came = row.kind === "split" ? [["Lists", whole(row.impressions), "one of each client"]]
    : [["a won", whole(row.wins_a), `of ${whole(row.impressions)} lists`], ["b won", whole(row.wins_b), `${whole(row.ties)} for neither`]];
  put(own.tiles, [
    ...came,
    ["Effect", signed(row.effect), `${bounds(row)}; above zero speaks for a`],
    ["p-value", chance(row.p_value), "valid whenever it is looked at"],
    ...Object.entries(row.signals).map(([name, found]) => [`By ${name}`, signed(found.effect), `${bounds(found)}, p ${chance(found.p_value)}: ${found.verdict}`]),
    ...Object.entries(row.guardrails).map(([name, arms]) => [GUARDS[name], Object.values(arms).map((found) => percent(found.share)).join(" / "), `of the lists; ${Object.entries(arms).map(share).join(", ")}`]),
  ].map(([what, value, note]) => h("div", {}, h("dt", {}, what), h("dd", {}, value), h("dd", { class: "note" }, note))));
  const { points } = row;
  lineChart(own.chart, { label: `Effect and interval of ${row.name}`, at: (i) => (points[i] ? `${whole(points[i].lists)} ${points[i].lists === 1 ? "list" : "lists"}` : ""), format: (value) => signed(value, 2),
    lines: [{ name: "effect", values: points.map((p) => p.effect), now: row.effect },
      { name: "lower bound", values: points.map((p) => p.interval[0]), now: row.interval[0] },
      { name: "upper bound", values: points.map((p) => p.interval[1]), now: row.interval[1] }] });
  const ended = row.ended === null ? "" : `Ended ${clock(row.ended)}. `;
  const when = row.verdict === "undecided" && row.decided_at !== null && row.ended === null ? ` At this rate decided about ${clock(row.decided_at)}.` : "";
  own.more.textContent = `${ended}Started ${clock(row.created)}.${when}`;
  return own.card;
}

async function launches(rankers) {
  const launched = rankers.filter((row) => row.launch !== null);
  const told = await Promise.all(launched.map((row) => ask(`v1/rankers/${encodeURIComponent(row.name)}/launch?wait=0`)));
  put($("launches"), launched.map((row, i) => h("section", { class: "card", "data-launch": row.name },
    h("header", {}, h("h2", {}, `Launch of ${row.name}`), h("p", {}, told[i].mode)),
    h("p", { class: told[i].mode === "frozen" ? "notice" : "lead" }, told[i].sentence))));
}

async function refresh() {
  const [{ experiments }, { rankers }] = await Promise.all([ask("v1/experiments"), ask("v1/rankers")]);
  const drawn = experiments.map(draw);
  const host = $("experiments");
  if (drawn.length !== host.children.length || drawn.some((one, i) => one !== host.children[i])) put(host, drawn);
  if (!drawn.length) put(host, h("p", { class: "empty" }, "No experiment yet."));
  put($("arms"), ["as-sent", ...rankers.map((row) => row.name)].map((value) => h("option", { value })));
  await launches(rankers);
}

function said(problem) {
  $("said").hidden = !problem;
  $("said").textContent = problem ? `${problem.message[0].toUpperCase()}${problem.message.slice(1)}.` : "";
}

async function act(address, options) {
  try {
    await ask(address, options);
    said(null);
    await refresh();
  } catch (problem) {
    said(problem);
  }
}

const stop = (name) => act(v1(name, "/stop"), { method: "POST" });

// The live page names two versions to compare.
for (const [name, value] of new URLSearchParams(location.search)) if (["a", "b"].includes(name)) $(name).value = value;

$("start").addEventListener("submit", (event) => {
  event.preventDefault();
  const body = { a: $("a").value.trim(), b: $("b").value.trim(), kind: $("kind").value, share: Number($("share").value), signals: $("signals").value.split(" ").filter(Boolean) };
  act(v1($("name").value.trim()), { method: "PUT", body: JSON.stringify(body) });
});

for (;;) {
  try {
    await refresh();
    pulse("live");
  } catch (problem) {
    pulse("waiting");
  }
  await new Promise((resume) => setTimeout(resume, PAUSE));
}
