// The live page: a client of /v1 like any other. A stream says when to ask again.

import { $, ask, clock, copyable, download, fixed, h, percent, posted, pulse, put, s, seconds, sure, whole } from "./dom.js";
import { lineChart } from "./chart.js";
import { drawFunctions } from "./functions.js";
import { drawWeights } from "./weights.js";
import { explainer, showDrawing, suited } from "./drawing.js";
import { follow, throttle } from "./stream.js";

const PAGE = 20;
const MOST_PAGES = 10;
const FEW_WEIGHTS = 24;
const FEW_FUNCTIONS = 6;
const SHOWN = 6; // documents of an impression in the table
const LAGS = 200;
const CALM = 2000; // milliseconds between drawings while following the newest impression
const state = { name: $("main").dataset.ranker, picked: null, when: "served", drawn: "", drawnAt: 0, page: 0, listed: [], all: false, last: null, lags: new Map() };
const v1 = (name, what = "") => `v1/rankers/${encodeURIComponent(name)}${what}`;

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
    ["rect", "pr-band-open", "order open"], ["rect", "pr-band", "place kept"], ["path", "pr-uncertain", "open pair"],
    ["path", "pr-certain", "kept order"], ["circle", "pr-clicked", "clicked"],
  ].map(([kind, style, text]) => h("li", {}, sample(kind, style), text));
  put(
    $("detail"),
    part("trouble", h("p", { class: "notice", role: "alert", hidden: true })),
    h("div", { class: "lede" }, part("title", h("h1", {})), part("helps", h("p", { class: "helps" })), part("window", h("p", {}))),
    part("cold", h("div", { hidden: true })),
    part("tiles", h("dl", { class: "tiles" })),
    part("charts", h("div", { class: "charts" },
      chart("clicks", "Clicks", "share of lists, and how high the clicks stand"),
      chart("explored", "Exploration", "share of shown positions drawn by chance"),
      chart("blocks", "Blocks in a shown list", "more blocks, more orders kept"),
      chart("sizes", "Size of the block", "that ranks 1, 5 and 10 came from"),
      chart("lag", "Learner lag", "lists that wait to be learned, while this page was open"))),
    h("div", { class: "columns" },
      part("impression", h("section", { class: "card" },
        h("header", {}, part("heading", h("h2", {}, "Impression")), part("about", h("p", {})),
          h("div", { class: "end tabs", role: "group", "aria-label": "Model" }, tabs)),
        h("ul", { class: "key" }, key),
        part("drawing", h("div", { class: "drawing", tabindex: 0, role: "region", "aria-label": "Blocks" })),
        part("said", h("p", { class: "said", "aria-live": "polite" })))),
      h("div", { class: "stack" },
        card("Weights", "heaviest first; the line is one standard deviation", part("weights", h("ul", { class: "weights" })),
          part("more", h("button", { type: "button", class: "plain", hidden: true, onclick: () => { state.all = !state.all; weigh(state.last.weights); } }))),
        card("Model versions", "kept, newest first; pin one to serve it while learning goes on", part("versions", h("div", { class: "scroll dense", tabindex: 0, role: "region", "aria-label": "Model versions" })),
          h("div", { class: "row" }, part("acts", h("div", {})), part("acted", h("p", { class: "muted", "aria-live": "polite" })))))),
    h("section", { class: "card" },
      h("header", {}, h("h2", {}, "Last impressions"), h("p", {}, "choose one to see its blocks"),
        h("div", { class: "end row" },
          part("newest", h("button", { type: "button", class: "plain", onclick: () => pick(null) }, "Follow the newest")),
          part("newer", h("button", { type: "button", onclick: () => turn(-1) }, "Newer")),
          part("older", h("button", { type: "button", onclick: () => turn(1) }, "Older")))),
      part("impressions", h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Last impressions" }))),
  );
}

const SHAPES = { rect: { x: 1, y: 1, width: 20, height: 12, rx: 4 }, path: { d: "M1 7H21" }, circle: { cx: 11, cy: 7, r: 6 } };
const sample = (kind, style) =>
  s("svg", { class: "pr-drawing", width: 22, height: 14, viewBox: "0 0 22 14", "aria-hidden": "true" }, s(kind, { ...SHAPES[kind], class: style }));

// Filling.

/** Draw what /v1 tells: {rankers, row, statistics, weights, versions, impressions}. Exported so that its time can be measured. */
export function render(told) {
  const { rankers, row, statistics, weights, versions, impressions } = told;
  state.last = told;
  listRankers(rankers);
  if (!row) return;
  if (!parts.title?.isConnected) build();
  parts.title.textContent = row.name;
  document.title = `${row.name} · PairRank`;
  parts.trouble.hidden = !row.stopped;
  parts.trouble.textContent = `This ranker does not learn any further: ${row.stopped}`;
  const { points, newest, oldest } = statistics;
  const cold = newest.lists === 0;
  for (const name of ["tiles", "charts"]) parts[name].hidden = cold;
  parts.cold.hidden = !cold;
  parts.window.textContent = cold ? "" : `Figures of the newest ${lists(newest.lists)} with feedback, until ${clock(newest.time)}; “at first” is the oldest ${whole(oldest.lists)} that ${oldest.lists === 1 ? "was" : "were"} read, until ${clock(oldest.time)}. A point of a chart is ${lists(Math.max(0, ...points.map((point) => point.lists)))}.`;
  parts.helps.hidden = cold;
  if (cold) lead(row);
  else {
    helps(statistics);
    tiles(row, statistics);
    charts(row, statistics);
  }
  weigh(weights);
  listVersions(row, versions);
  listImpressions(state.page === 0 ? impressions : state.listed);
}

// Fewer lists at either end say nothing.
const ENOUGH = 20;

/** Does it help? What the log can say of it, and where it is decided. */
function helps({ oldest, newest }) {
  const known = newest.ndcg !== null && oldest.ndcg !== null && Math.min(newest.lists, oldest.lists) >= ENOUGH;
  const points = Math.round(100 * newest.ndcg) - Math.round(100 * oldest.ndcg);
  const moved = points === 0 ? "stand as high as at first" : `stand ${points > 0 ? "higher" : "lower"} than at first`;
  const said = known
    ? `Clicks ${moved}: ${percent(newest.ndcg)} of the best possible, ${percent(oldest.ndcg)} at first. `
    : `There are too few lists with clicks to tell from them. `;
  put(parts.helps, h("strong", {}, "Does it help? "), said,
    h("a", { href: "experiments" }, "An experiment against the present order"), " decides it.");
}

const lists = (count) => `${whole(count)} ${count === 1 ? "list" : "lists"}`;

/** What to send to a ranker that has heard nothing: the server writes it, with its own address. */
async function lead({ name }) {
  if (parts.cold.dataset.ranker === name) return;
  parts.cold.dataset.ranker = name;
  const page = new DOMParser().parseFromString(await ask(`?ranker=${encodeURIComponent(name)}`, { as: "text" }), "text/html");
  const steps = page.getElementById("steps");
  if (steps) put(parts.cold, document.importNode(steps, true));
  copyable(parts.cold);
}

function listRankers(rankers) {
  if (!rankers.length) return;
  if (!$("rankers")) $("detail").before(h("section", { class: "card", id: "rankers", "aria-label": "All rankers" }));
  const heads = ["Name", "Algorithm", "Features", "Feedback", "Model", "Waiting", "Learned last", "State"];
  const rows = rankers.map((row) => ({
    current: row.name === state.name,
    cells: [
      h("a", { class: "name", href: `?ranker=${encodeURIComponent(row.name)}`, onclick: (event) => choose(event, row.name) }, row.name),
      row.ranker, whole(row.n_features), whole(row.feedback_count), whole(row.served_version), whole(row.lag),
      row.learned_count ? clock(row.updated) : "–", standing(row),
    ],
  }));
  const focused = document.activeElement?.closest("#rankers") ? document.activeElement.textContent : null;
  put($("rankers"), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "All rankers" }, table(heads, [2, 3, 4, 5, 6], rows)));
  if (focused) [...$("rankers").querySelectorAll("a")].find((link) => link.textContent === focused)?.focus();
}

const LAUNCHED = { shadow: "in the shadow", guarded: "guarded launch", frozen: "launch stopped by a breach" };

/** What is not as usual with a ranker. */
function standing(row) {
  const said = [row.stopped ? "stopped" : null, row.frozen ? "frozen" : null, row.pinned === null ? null : "pinned", LAUNCHED[row.launch],
    row.set_aside ? `${whole(row.set_aside)} set aside` : null].filter(Boolean);
  return said.join(", ") || "learns";
}

function tiles(row, { oldest, newest, kept, lag_seconds }) {
  const doubt = kept?.wrong === null || !kept ? "" : `; the model itself expects ${percent(kept.wrong)} of them wrong`;
  const all = [
    ["Click-through", percent(newest.ctr), `of lists with feedback; ${percent(oldest.ctr)} at first`],
    ["NDCG of clicks", percent(newest.ndcg), `100 % with all on top; ${percent(oldest.ndcg)} at first`],
    ["Explored", percent(newest.explored), `of shown positions; ${percent(oldest.explored)} at first`],
    ["Blocks", fixed(newest.blocks, 1), `in a shown list; ${fixed(oldest.blocks, 1)} at first`],
    ["Orders kept", percent(kept?.share), `of shown pairs${doubt}`],
    ["Model", whole(row.served_version), `${lists(row.feedback_count)} with feedback, ${whole(row.lag)} waiting${row.lag ? `, ${seconds(lag_seconds)}` : ""}`],
  ];
  put(parts.tiles, all.map(([what, value, note]) =>
    h("div", {}, h("dt", {}, what), h("dd", {}, value), h("dd", { class: "note" }, note))));
}

function charts({ name }, { points, newest }) {
  const lags = state.lags.get(name) ?? [];
  const values = (key) => points.map((point) => point[key]);
  const when = (i) => (points[i] ? clock(points[i].time) : "");
  const share = (value) => percent(value);
  const one = (value) => fixed(value, value >= 10 || Number.isInteger(value) ? 0 : 1);
  lineChart(parts.clicks, { label: "Clicks over time", at: when, format: share, from: 0, to: 1,
    lines: [{ name: "click-through", values: values("ctr"), now: newest.ctr }, { name: "NDCG of clicks", values: values("ndcg"), now: newest.ndcg }] });
  lineChart(parts.explored, { label: "Share of explored positions over time", at: when, format: share, from: 0, to: 1,
    lines: [{ name: "explored", values: values("explored"), now: newest.explored }] });
  lineChart(parts.blocks, { label: "Blocks in a shown list over time", at: when, format: one, from: 0,
    lines: [{ name: "blocks", values: values("blocks"), now: newest.blocks }] });
  lineChart(parts.sizes, { label: "Block sizes over time", at: when, format: one, from: 0,
    lines: [...[1, 5, 10].map((rank) => ({ name: `rank ${rank}`, values: values(`size_${rank}`), now: newest[`size_${rank}`] }))] });
  lineChart(parts.lag, { label: "Learner lag", at: (i) => (lags[i] ? clock(lags[i][0]) : ""), format: whole, from: 0, to: Math.max(3, ...lags.map((lag) => lag[1])),
    lines: [{ name: "waiting", values: lags.map((lag) => lag[1]) }] });
}

/** Weights as bars, or the functions of an additive model as curves. */
function weigh(weights) {
  const { features, functions } = weights;
  const told = functions ?? features;
  const few = functions ? FEW_FUNCTIONS : FEW_WEIGHTS;
  const shown = told && (state.all ? told : told.slice(0, few));
  const [title, about] = parts.weights.closest("section").querySelectorAll("h2, header p");
  title.textContent = functions ? "Functions" : "Weights";
  about.textContent = functions
    ? "what each feature adds to the score, strongest first; the band is one standard deviation, marks are documents"
    : "heaviest first; the line is one standard deviation";
  parts.weights.className = functions ? "functions" : "weights";
  if (functions) drawFunctions(parts.weights, shown);
  else drawWeights(parts.weights, shown);
  parts.more.hidden = !told || told.length <= few;
  if (!told) return;
  const rest = weights.total > told.length ? ` of ${whole(weights.total)}` : "";
  parts.more.textContent = state.all ? "Show fewer" : `Show ${told.length}${rest}`;
}

/** Kept versions, each with what an administrator may do with it. Every act asks once more before it is done. */
function listVersions(row, versions) {
  if ($("detail").querySelector("[data-sure]")) return; // somebody is being asked
  const act = (what, path, body) => h("button", { type: "button", class: "plain", onclick: (event) => administer(event.target, v1(row.name, path), body) }, what);
  put(parts.versions, table(["Version", "Lists learned", "Made", ""], [0, 1, 2], versions.filter((v, i) => i < 6 || v.version === row.pinned).map((v) => ({
    current: v.version === row.served_version,
    cells: [whole(v.version), whole(v.learned_count), clock(v.created), h("div", { class: "acts" },
      h("a", { href: v1(row.name, `/model?version=${v.version}`), download: `${row.name}-${v.version}.pairrank`, onclick: (event) => download(event, parts.acted) }, "File"),
      v.version === row.pinned ? act("Unpin", "/pin", { version: null }) : act("Pin", "/pin", { version: v.version }),
      v.version === row.model_version ? null : [
        h("a", { href: `experiments?${new URLSearchParams({ a: row.name, b: `${row.name}@${v.version}` })}` }, "Compare"),
        act("Go back", "/rollback", { version: v.version })])],
  }))));
  put(parts.acts, act(row.frozen ? "Learn again" : "Stop learning", "/freeze", { frozen: !row.frozen }));
}

async function administer(button, address, body) {
  if (!sure(button, `${button.textContent}: sure?`)) return;
  try {
    await ask(address, posted(body));
    parts.acted.textContent = "Done.";
  } catch (problem) {
    parts.acted.textContent = problem.message;
  }
  button.blur();
  refresh();
}

function listImpressions(impressions) {
  state.listed = impressions ?? [];
  const rows = state.listed.map((item) => {
    const documents = item.ids.slice(0, SHOWN).map((text, i) => h("li", { class: item.clicks?.[i] ? "doc clicked" : "doc", title: text }, text));
    if (item.ids.length > SHOWN) documents.push(h("li", { class: "muted" }, `+ ${item.ids.length - SHOWN}`));
    const open = h("a", { href: picture(item.number), onclick: (event) => { event.preventDefault(); pick(item.number); } }, clock(item.time));
    const standing_ = item.state === "collecting" ? `collecting until ${clock(item.closes)}` : item.state;
    return { current: item.number === state.picked, cells: [open, item.query_id ?? "–", h("ul", { class: "list" }, documents), whole(item.model_version), standing_] };
  });
  const none = impressions === null ? "What was shown and clicked is told with an admin key." : "None yet.";
  put(parts.impressions, rows.length ? table(["Shown at", "Query", "Documents", "Model", "State"], [3], rows) : h("p", { class: "empty" }, none));
  parts.newer.disabled = state.page === 0;
  parts.older.disabled = rows.length < PAGE || state.page + 1 >= MOST_PAGES;
  parts.newest.setAttribute("aria-pressed", String(state.picked === null && state.page === 0));
  const shown = state.picked ?? (state.page === 0 ? state.listed[0]?.number : undefined);
  if (shown !== undefined) drawImpression(shown);
  else if (!rows.length) put(parts.drawing, h("p", { class: "empty" }, impressions === null ? none : "Nothing was shown yet."));
}

function table(heads, right, rows) {
  const side = (i, other) => (right.includes(i) ? "right" : other);
  return h("table", {},
    h("thead", {}, h("tr", {}, heads.map((head, i) => h("th", { scope: "col", class: side(i, null) }, head)))),
    h("tbody", {}, rows.map((row) => h("tr", { "aria-current": row.current ? "true" : null },
      row.cells.map((cell, i) => h("td", { class: side(i, "wrap") }, cell))))));
}

const picture = (number) => `impressions/${encodeURIComponent(state.name)}/${number}`;

async function drawImpression(number) {
  const address = picture(number);
  const item = state.listed.find((other) => other.number === number);
  const key = `${address} ${state.when} ${state.when === "now" ? state.last.row.model_version : ""} ${item?.clicks ?? ""}`;
  if (state.drawn === key) return;
  // Following the newest must not tear away what somebody is looking at, nor flicker.
  const busy = parts.drawing.matches(":hover, :focus-within") || Date.now() - state.drawnAt < CALM;
  if (state.picked === null && state.drawn.startsWith(picture("")) && state.drawn.split(" ")[1] === state.when && busy) return;
  Object.assign(state, { drawn: key, drawnAt: Date.now() });
  parts.heading.textContent = `Impression ${number}`;
  parts.about.textContent = item ? `${item.query_id ? `“${item.query_id}”, ` : ""}${clock(item.time)}` : "";
  const query = `?when=${state.when}`;
  try {
    const text = await ask(suited(`${address}/drawing.svg${query}`), { as: "text" });
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
  history.pushState({ name }, "", `?ranker=${encodeURIComponent(name)}`);
  refresh();
}

function pick(number) {
  state.picked = number;
  if (number === null) state.page = 0;
  listImpressions(number === null ? state.last.impressions : state.listed);
  if (number !== null) parts.impression.scrollIntoView({ block: "nearest" });
}

async function turn(by) {
  state.page = Math.max(0, state.page + by);
  listImpressions(await askImpressions(state.page * PAGE));
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

/** Impressions, newest first; null for a key that may not see them, which is asked for once. */
async function askImpressions(offset = 0) {
  if (state.closed) return null;
  try {
    return (await ask(v1(state.name, `/impressions?limit=${PAGE}&offset=${offset}`))).impressions;
  } catch (problem) {
    state.closed = problem.status === 403;
    if (state.closed) return null;
    throw problem;
  }
}

const refresh = throttle(async () => {
  try {
    const { rankers } = await ask("v1/rankers");
    if (!state.name) {
      state.name = rankers[0]?.name ?? "";
      if (!state.name) return;
      history.replaceState(null, "", `?ranker=${encodeURIComponent(state.name)}`);
    }
    const { name } = state;
    const row = rankers.find((other) => other.name === name);
    if (!row) {
      gone(rankers);
      return;
    }
    const known = state.last?.row?.name === name && state.last.row.state_digest === row.state_digest ? state.last : null;
    const [statistics, weights, versions, impressions] = await Promise.all([
      ask(v1(name, "/statistics")),
      known?.weights ?? ask(v1(name, "/weights")),
      known?.versions ?? ask(v1(name, "/versions")).then((answer) => answer.versions),
      askImpressions(),
    ]);
    note(rankers);
    if (name === state.name) render({ rankers, row, statistics, weights, versions, impressions });
    if (statistics.behind) setTimeout(refresh, 0); // a long log is read in pieces
  } catch { /* the server is away, or the ranker was deleted just now: the next event asks again */ }
}, 400);

/** Remember how far behind the learner was, while this page is open. */
function note(rankers) {
  for (const { name, lag } of rankers) {
    const seen = state.lags.get(name) ?? [];
    state.lags.set(name, [...seen, [Date.now() / 1000, lag]].slice(-LAGS));
  }
}

/** The ranker that was asked for is not there: say so, and leave the choice of another to the reader. */
function gone(rankers) {
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

follow("v1/stream", refresh, (now) => {
  pulse(now);
  if (now === "live") refresh();
});
