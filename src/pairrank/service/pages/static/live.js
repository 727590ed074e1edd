// The live page. Everything on it is drawn from one answer of the server; a stream says when to ask again.

import { $, ask, clock, copyable, fixed, h, percent, put, seconds, whole } from "./dom.js";
import { lineChart } from "./chart.js";
import { drawWeights } from "./weights.js";
import { explainer, showDrawing, suited } from "./drawing.js";
import { follow, throttle } from "./stream.js";

const PAGE = 20;
const MOST_PAGES = 10;
const FEW_WEIGHTS = 24;
const CALM = 2000; // milliseconds between drawings while following the newest impression
const state = { name: $("main").dataset.ranker, picked: null, when: "served", drawn: "", drawnAt: 0, page: 0, listed: [], all: false, last: null };

// The frame, built once: what follows only fills it, so focus and scroll stay where they are.

const parts = {};
const part = (name, element) => (parts[name] = element);
const card = (title, note, ...content) =>
  h("section", { class: "card" }, h("header", {}, h("h2", {}, title), h("p", {}, note)), ...content);

function build() {
  const chart = (name, title, note) => card(title, note, part(name, h("div", {})));
  const tabs = ["served", "now"].map((when) =>
    h("button", { type: "button", "aria-pressed": String(when === state.when), "aria-selected": String(when === state.when), onclick: () => look(when) },
      when === "served" ? "As served" : "As of now"));
  parts.tabs = tabs;
  const key = [
    ["pr-band-open", "order open"], ["pr-band", "place kept"],
  ].map(([style, text]) => h("li", {}, sample("rect", style), text));
  key.push(h("li", {}, sample("path", "pr-uncertain"), "open pair"), h("li", {}, sample("path", "pr-certain"), "kept order"),
    h("li", {}, sample("circle", "pr-clicked"), "clicked"));
  put(
    $("detail"),
    h("div", { class: "lede" }, part("title", h("h1", {})), part("window", h("p", {}))),
    part("cold", h("div", { hidden: true })),
    part("tiles", h("dl", { class: "tiles" })),
    part("charts", h("div", { class: "charts" },
      chart("clicks", "Clicks", "share of lists, and how high the clicks stand"),
      chart("explored", "Exploration", "share of shown positions drawn by chance"),
      chart("blocks", "Blocks in a shown list", "more blocks, more orders kept"),
      chart("sizes", "Size of the block", "that ranks 1, 5 and 10 came from"),
      chart("lag", "Learner lag", "lists that wait to be learned, while this page was open"),
      card("Model versions", "kept, newest first", part("versions", h("div", { class: "scroll dense", tabindex: 0, role: "region", "aria-label": "Model versions" }))))),
    h("div", { class: "columns" },
      part("impression", h("section", { class: "card" },
        h("header", {}, part("heading", h("h2", {}, "Impression")), part("about", h("p", {})),
          h("div", { class: "end tabs", role: "group", "aria-label": "Model" }, tabs)),
        h("ul", { class: "key" }, key),
        part("drawing", h("div", { class: "drawing", tabindex: 0, role: "region", "aria-label": "Blocks" })),
        part("said", h("p", { class: "said", "aria-live": "polite" })))),
      card("Weights", "heaviest first; the line is one standard deviation", part("weights", h("ul", { class: "weights" })),
        part("more", h("button", { type: "button", class: "plain", hidden: true, onclick: () => { state.all = !state.all; weigh(state.last.detail); } })))),
    h("section", { class: "card" },
      h("header", {}, h("h2", {}, "Last impressions"), h("p", {}, "choose one to see its blocks"),
        h("div", { class: "end row" },
          part("newest", h("button", { type: "button", class: "plain", onclick: () => pick(null) }, "Follow the newest")),
          part("newer", h("button", { type: "button", onclick: () => turn(-1) }, "Newer")),
          part("older", h("button", { type: "button", onclick: () => turn(1) }, "Older")))),
      part("impressions", h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Last impressions" }))),
  );
}

function sample(kind, style) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [name, value] of Object.entries({ class: "pr-drawing", width: 22, height: 14, viewBox: "0 0 22 14", "aria-hidden": "true" })) svg.setAttribute(name, value);
  const shapes = {
    rect: { x: 1, y: 1, width: 20, height: 12, rx: 4 }, path: { d: "M1 7H21" }, circle: { cx: 11, cy: 7, r: 6 },
  };
  const shape = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries({ ...shapes[kind], class: style })) shape.setAttribute(name, value);
  svg.append(shape);
  return svg;
}

// Filling.

/** Draw one answer of the server: {rankers, detail}. Exported so that its time can be measured. */
export function render({ rankers, detail }) {
  state.last = { rankers, detail };
  listRankers(rankers);
  if (!detail) return;
  if (!parts.title?.isConnected) build();
  parts.title.textContent = detail.name;
  document.title = `${detail.name} · PairRank`;
  const cold = detail.recent.lists === 0;
  for (const name of ["tiles", "charts"]) parts[name].hidden = cold;
  parts.cold.hidden = !cold;
  parts.window.textContent = cold ? "" : `Figures of the newest ${lists(detail.recent.lists)} with feedback, until ${clock(detail.recent.at)}; a point of a chart is ${lists(Math.max(...detail.series.map((point) => point.lists)))}.`;
  if (cold) lead(detail);
  else {
    tiles(detail);
    charts(detail);
  }
  weigh(detail);
  put(parts.versions, table(["Version", "Lists learned", "Made"], [0, 1, 2],
    detail.versions.slice(0, 6).map((v) => ({ cells: [whole(v.version), whole(v.learned), clock(v.created)] }))));
  listImpressions(state.page === 0 ? detail.impressions : state.listed);
}

const lists = (count) => `${whole(count)} ${count === 1 ? "list" : "lists"}`;

/** What to send to a ranker that has heard nothing: the server writes it, with its own address. */
async function lead({ name }) {
  if (parts.cold.dataset.ranker === name) return;
  parts.cold.dataset.ranker = name;
  const page = new DOMParser().parseFromString(await ask(`/?ranker=${encodeURIComponent(name)}`, { text: true }), "text/html");
  const steps = page.getElementById("steps");
  if (steps) put(parts.cold, document.importNode(steps, true));
  copyable(parts.cold);
}

function listRankers(rankers) {
  if (!rankers.length) return;
  if (!$("rankers")) $("detail").before(h("section", { class: "card", id: "rankers", "aria-label": "All rankers" }));
  const heads = ["Name", "Algorithm", "Features", "Feedback", "Model", "Click-through", "Explored", "Lag", ""];
  const rows = rankers.map((row) => ({
    current: row.name === state.name,
    cells: [
      h("a", { class: "name", href: `/?ranker=${encodeURIComponent(row.name)}`, onclick: (event) => choose(event, row.name) }, row.name),
      row.algorithm, whole(row.features), whole(row.feedback), whole(row.version), percent(row.recent.ctr),
      percent(row.recent.explored), whole(row.lag), row.frozen ? h("span", { class: "tag" }, "frozen") : "",
    ],
  }));
  const focused = document.activeElement?.closest("#rankers") ? document.activeElement.textContent : null;
  put($("rankers"), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "All rankers" }, table(heads, [2, 3, 4, 5, 6, 7], rows)));
  if (focused) [...$("rankers").querySelectorAll("a")].find((link) => link.textContent === focused)?.focus();
}

function tiles(detail) {
  const { recent, kept } = detail;
  const doubt = kept?.wrong === null || !kept ? "" : `; the model itself expects ${percent(kept.wrong)} of them wrong`;
  const all = [
    ["Click-through", percent(recent.ctr), "of lists with feedback"],
    ["NDCG of clicks", percent(recent.ndcg), "100 % when clicks are on top"],
    ["Explored", percent(recent.explored), "of shown positions"],
    ["Blocks", fixed(recent.blocks, 1), "in a shown list"],
    ["Orders kept", percent(kept?.share), `of shown pairs${doubt}`],
    ["Model", whole(detail.version), `${lists(detail.feedback)} with feedback, ${whole(detail.lag)} waiting${detail.lag ? `, ${seconds(detail.lag_seconds)}` : ""}`],
  ];
  put(parts.tiles, all.map(([what, value, note]) =>
    h("div", {}, h("dt", {}, what), h("dd", {}, value), h("dd", { class: "note" }, note))));
}

function charts({ series, lags, recent }) {
  const values = (key) => series.map((point) => point[key]);
  const when = (i) => (series[i] ? clock(series[i].at) : "");
  const share = (value) => percent(value);
  const one = (value) => fixed(value, value >= 10 || Number.isInteger(value) ? 0 : 1);
  lineChart(parts.clicks, { label: "Clicks over time", at: when, format: share, from: 0, to: 1,
    lines: [{ name: "click-through", values: values("ctr"), now: recent.ctr }, { name: "NDCG of clicks", values: values("ndcg"), now: recent.ndcg }] });
  lineChart(parts.explored, { label: "Share of explored positions over time", at: when, format: share, from: 0, to: 1,
    lines: [{ name: "explored", values: values("explored"), now: recent.explored }] });
  lineChart(parts.blocks, { label: "Blocks in a shown list over time", at: when, format: one, from: 0,
    lines: [{ name: "blocks", values: values("blocks"), now: recent.blocks }] });
  lineChart(parts.sizes, { label: "Block sizes over time", at: when, format: one, from: 0,
    lines: [...[1, 5, 10].map((rank) => ({ name: `rank ${rank}`, values: values(`size_${rank}`), now: recent[`size_${rank}`] }))] });
  lineChart(parts.lag, { label: "Learner lag", at: (i) => (lags[i] ? clock(lags[i][0]) : ""), format: whole, from: 0, to: Math.max(3, ...lags.map((lag) => lag[1])),
    lines: [{ name: "waiting", values: lags.map((lag) => lag[1]) }] });
}

function weigh({ weights }) {
  const features = weights?.features ?? null;
  drawWeights(parts.weights, features && (state.all ? features : features.slice(0, FEW_WEIGHTS)));
  parts.more.hidden = !features || features.length <= FEW_WEIGHTS;
  if (!features) return;
  const rest = weights.total > features.length ? ` of ${whole(weights.total)}` : "";
  parts.more.textContent = state.all ? "Show fewer" : `Show ${features.length}${rest}`;
}

function listImpressions(impressions) {
  state.listed = impressions;
  const rows = impressions.map((item) => {
    const clicked = new Set(item.clicked ?? []);
    const documents = item.shown.map((text, i) => h("li", { class: clicked.has(i) ? "doc clicked" : "doc", title: text }, text));
    if (item.more) documents.push(h("li", { class: "muted" }, `+ ${item.more}`));
    const open = h("a", { href: `/impressions/${encodeURIComponent(state.name)}/${item.number}`, onclick: (event) => { event.preventDefault(); pick(item.number); } }, clock(item.at));
    return { current: item.number === state.picked, cells: [open, item.query ?? "–", h("ul", { class: "list" }, documents), whole(item.version), item.state === "collecting" ? `collecting until ${clock(item.closes)}` : item.state] };
  });
  put(parts.impressions, rows.length ? table(["Shown at", "Query", "Documents", "Model", "State"], [3], rows) : h("p", { class: "empty" }, "None yet."));
  parts.newer.disabled = state.page === 0;
  parts.older.disabled = impressions.length < PAGE || state.page + 1 >= MOST_PAGES;
  parts.newest.disabled = state.picked === null && state.page === 0;
  const shown = state.picked ?? (state.page === 0 ? impressions[0]?.number : undefined);
  if (shown !== undefined) drawImpression(shown);
  else if (!impressions.length) put(parts.drawing, h("p", { class: "empty" }, "Nothing was shown yet."));
}

function table(heads, right, rows) {
  const side = (i, other) => (right.includes(i) ? "right" : other);
  return h("table", {},
    h("thead", {}, h("tr", {}, heads.map((head, i) => h("th", { scope: "col", class: side(i, null) }, head)))),
    h("tbody", {}, rows.map((row) => h("tr", { "aria-current": row.current ? "true" : null },
      row.cells.map((cell, i) => h("td", { class: side(i, "wrap") }, cell))))));
}

async function drawImpression(number) {
  const address = `/live/rankers/${encodeURIComponent(state.name)}/impressions/${number}`;
  const clicked = state.listed.find((item) => item.number === number)?.clicked ?? "";
  const key = `${address} ${state.when} ${state.when === "now" ? state.last.detail.version : ""} ${clicked}`;
  if (state.drawn === key) return;
  // Following the newest must not tear away what somebody is looking at, nor flicker.
  const busy = parts.drawing.matches(":hover, :focus-within") || Date.now() - state.drawnAt < CALM;
  if (state.picked === null && state.drawn.startsWith(`/live/rankers/${encodeURIComponent(state.name)}/`) && state.drawn.split(" ")[1] === state.when && busy) return;
  Object.assign(state, { drawn: key, drawnAt: Date.now() });
  const query = `?when=${state.when}`;
  try {
    const facts = await ask(address + query);
    parts.heading.textContent = `Impression ${facts.number}`;
    const query_ = facts.query ? `“${facts.query}”, ` : "";
    parts.about.textContent = `${query_}${facts.candidates} ${facts.candidates === 1 ? "candidate" : "candidates"}, model ${whole(facts.drawn)}`;
    if (!facts.drawable) {
      put(parts.drawing, h("p", { class: "empty" }, "This ranker has no notion of blocks."));
      return;
    }
    const text = await ask(suited(`${address}/drawing.svg${query}`), { text: true });
    if (state.drawn === key) showDrawing(parts.drawing, text, parts.said, explainer(`${address}/pairs${query}`));
  } catch (problem) {
    if (problem.status) put(parts.drawing, h("p", { class: "empty" }, problem.message));
    else state.drawn = ""; // the server is away; drawn again when it is back
  }
}

// Choosing.

function choose(event, name) {
  if (event.metaKey || event.ctrlKey) return;
  event.preventDefault();
  Object.assign(state, { name, picked: null, page: 0, drawn: "" });
  history.pushState({ name }, "", `/?ranker=${encodeURIComponent(name)}`);
  refresh();
}

function pick(number) {
  state.picked = number;
  if (number === null) state.page = 0;
  listImpressions(number === null ? state.last.detail.impressions : state.listed);
  if (number !== null) parts.impression.scrollIntoView({ block: "nearest" });
}

async function turn(by) {
  state.page = Math.max(0, state.page + by);
  const answer = await ask(`/live/rankers/${encodeURIComponent(state.name)}/impressions?offset=${state.page * PAGE}`);
  listImpressions(answer.impressions);
}

function look(when) {
  state.when = when;
  parts.tabs.forEach((tab, i) => {
    const on = String((i === 0) === (when === "served"));
    tab.setAttribute("aria-pressed", on);
    tab.setAttribute("aria-selected", on);
  });
  refresh();
}

const refresh = throttle(async () => {
  try {
    if (!state.name) {
      const { rankers } = await ask("/live/rankers");
      state.name = rankers[0]?.name ?? "";
      if (!state.name) return;
      history.replaceState(null, "", `/?ranker=${encodeURIComponent(state.name)}`);
    }
    const answer = await ask(`/live/rankers/${encodeURIComponent(state.name)}`);
    render(answer);
    if (answer.behind) setTimeout(refresh, 0); // a long log is read in pieces
  } catch (problem) {
    if (problem.status === 404) gone();
  }
}, 400);

/** The ranker that was asked for is not there: say so, and leave the choice of another to the reader. */
async function gone() {
  const { rankers } = await ask("/live/rankers");
  listRankers(rankers);
  document.title = "Live · PairRank";
  put($("detail"), h("p", { class: "notice", role: "alert" }, `There is no ranker called “${state.name}”; it may have been deleted.`));
}

copyable(document);
setInterval(() => document.hidden || refresh(), 5000); // single clicks of a list that still collects change no model
addEventListener("popstate", () => {
  state.name = new URLSearchParams(location.search).get("ranker") ?? "";
  Object.assign(state, { picked: null, page: 0, drawn: "" });
  refresh();
});

follow("/v1/stream", refresh, (now) => {
  $("pulse").dataset.state = now;
  put($("pulse"), h("span", {}, now === "live" ? "live" : "waiting for the server"));
  if (now === "live") refresh();
});
