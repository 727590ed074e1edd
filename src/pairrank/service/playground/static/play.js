// The playground: a search, its bands, and what the ranker has learned. A person's clicks go to the public endpoint.

import { $, ask, download, h, percent, posted, pulse, put, request, sure, whole } from "../../static/dom.js";
import { lineChart } from "../../static/chart.js";
import { drawWeights } from "../../static/weights.js";
import { explainer, showDrawing, suited } from "../../static/drawing.js";
import { events, follow } from "../../static/stream.js";

const RANKER = "v1/rankers/playground";
const VIEWS = ["results", "blocks", "compare"];
const state = { view: "results", found: null, marked: new Set(), places: new Map(), curve: [], searched: 0, stop: null, marks: new Map() };
const FIRST_POINT = 20; // searches before the curve begins: fewer are no mean

// Searching.

async function search(query) {
  state.searched = Date.now();
  $("query").value = query;
  history.replaceState(null, "", `?q=${encodeURIComponent(query)}`);
  try {
    showResults(await ask("play/search", posted({ query })));
  } catch (problem) {
    $("summary").textContent = problem.message;
  }
}

/** Draw the answer of one search. Exported so that its time can be measured. */
export function showResults(found) {
  const before = state.found?.query === found.query ? state.places : new Map();
  state.found = found;
  state.marked.clear();
  state.places = new Map(found.results.map((hit, i) => [hit.id, i]));
  const open = found.results.filter((hit) => hit.size > 1).length;
  const single = found.results.length - open;
  $("summary").textContent = found.results.length
    ? `${whole(found.candidates)} candidates; of ${found.results.length} shown, ${single} in kept places, ${open} open`
    : `Nothing mentions “${found.query}”.`;
  put($("results"), found.results.length ? h("ol", { class: "bands" }, bands(found.results, before)) : h("p", { class: "empty" }, "Try other words."));
  mark();
  if (state.view !== "results") show(state.view);
}

function bands(results, before) {
  const groups = [];
  results.forEach((hit, i) => {
    // Documents in kept places, one block each, stand in one band.
    const before_ = groups.at(-1)?.[0].hit;
    if (!before_ || (before_.block !== hit.block && !(before_.size === 1 && hit.size === 1))) groups.push([]);
    groups.at(-1).push({ hit, i });
  });
  return groups.map((group) => {
    const { size, block } = group[0].hit;
    const last = group.at(-1).hit.block;
    const rest = size > group.length ? `, ${group.length} of them shown` : "";
    const text = size > 1 ? `${size} documents in open order${rest}` : group.length > 1 ? "places kept" : "place kept";
    return h("li", { class: size > 1 ? "band open" : "band" },
      h("p", { class: "of" }, h("b", {}, block === last ? `Block ${block + 1}` : `Blocks ${block + 1} to ${last + 1}`), h("span", {}, text)),
      h("ol", {}, group.map(({ hit, i }) => card(hit, i, before.get(hit.id)))));
  });
}

function card(hit, i, was) {
  const dot = hit.id.length - hit.name.length;
  const moved = was === undefined || was === i ? null
    : h("span", { class: was > i ? "move up" : "move down" }, was > i ? `▲ ${was - i}` : `▼ ${i - was}`, h("span", { class: "away" }, was > i ? " up" : " down"));
  const path = hit.id.endsWith(hit.name) ? [h("span", {}, dotted(hit.id.slice(0, dot))), hit.name] : dotted(hit.id);
  return h("li", { class: "hit", "data-id": hit.id, onclick: clickRow },
    h("span", { class: "place" }, String(i + 1)),
    h("div", { class: "what" },
      h("div", { class: "title" }, h("span", { class: "path" }, path), h("span", { class: "tag" }, hit.kind), moved),
      hit.signature ? h("div", { class: "signature", title: hit.signature }, hit.signature) : null,
      h("div", { class: "summary" }, hit.summary)),
    h("button", { type: "button", class: "useful", "aria-pressed": "false", "aria-label": `Useful: ${hit.id}`, "data-id": hit.id }, "Useful"));
}

/** A dotted name that a line may break after its dots. */
const dotted = (name) => name.split(/(?<=\.)/).flatMap((part) => [part, h("wbr")]);

// Learning.

/** A click anywhere on a result marks it; whoever selects text to copy it does not click. */
function clickRow(event) {
  if (!getSelection().isCollapsed) return;
  const { id } = event.currentTarget.dataset;
  if (!state.marked.delete(id)) state.marked.add(id);
  mark();
}

/** Where what was marked stood when it was first marked, and where it stands in the latest list of its query. */
function remember(query, ids, place) {
  for (const id of ids) {
    const known = state.marks.get(`${query}\n${id}`);
    const now = place.has(id) ? place.get(id) + 1 : place.size + 1;
    state.marks.set(`${query}\n${id}`, { was: known?.was ?? now, now });
  }
}

function tellLesson(shown) {
  const marks = [...state.marks.values()];
  const mean = (key) => (marks.reduce((sum, mark) => sum + mark[key], 0) / marks.length).toFixed(1);
  const adrift = shown.filter((hit) => hit.size > shown.length).length; // in blocks larger than the list
  const chance = adrift > shown.length / 2 ? " Most of the order is still drawn by chance; some more marks will show." : "";
  $("lesson").hidden = false;
  $("lesson").textContent = `Learned. What you marked so far (${marks.length}) stood at place ${mean("was")} on average when you first marked it, and at ${mean("now")} in the latest list of its query.${chance}`;
}

function mark() {
  for (const button of $("results").querySelectorAll(".useful")) {
    const on = state.marked.has(button.dataset.id);
    button.setAttribute("aria-pressed", String(on));
    button.textContent = on ? "✓ Useful" : "Useful";
  }
  $("teach").hidden = state.marked.size === 0 || state.view !== "results";
  $("marked").textContent = `${state.marked.size} marked useful`;
}

async function learn() {
  const { impression_id, query } = state.found;
  const marked = [...state.marked];
  $("learn").disabled = true;
  try {
    await ask(`${RANKER}/feedback`, posted({ impression_id, clicks: marked }));
    remember(query, marked, state.places);
    await ask(`${RANKER}?wait=1`);
    await search(query);
    const again = [...state.marks.keys()].filter((key) => key.startsWith(`${query}\n`)).map((key) => key.slice(query.length + 1));
    remember(query, again, state.places);
    tellLesson(state.found.results);
    await tellState();
  } catch (problem) {
    $("marked").textContent = problem.message;
  } finally {
    $("learn").disabled = false;
  }
}

async function tellState() {
  const now = await ask("play/state");
  tellModel(now.feedback, now.version, now.weights);
}

function tellModel(feedback, version, weights) {
  $("learnt").textContent = feedback ? `from ${whole(feedback)} ${feedback === 1 ? "search" : "searches"}; the line is one standard deviation` : "nothing yet";
  drawWeights($("weights"), weights);
}

// Simulated users: one streamed answer, which ends when it is cut off.

async function simulate() {
  if (state.stop) {
    state.stop();
    return;
  }
  const controller = new AbortController();
  state.stop = () => controller.abort();
  running(true);
  let last = null;
  try {
    const wanted = posted({ users: $("users").value, searches: 1000 });
    const answer = await request("play/simulate", { ...wanted, signal: controller.signal });
    for await (const [, now] of events(answer, controller)) {
      last = now;
      step(now);
    }
    $("simtext").textContent = last ? `${whole(last.done)} searches done; in the last ones the wanted document stood first in ${percent(last.first)}, and NDCG@10 was ${percent(last.ndcg)} where BM25 has ${percent(last.bm25)}.` : "";
  } catch (problem) {
    $("simtext").textContent = controller.signal.aborted ? `Stopped after ${whole(last?.done ?? 0)} searches.` : `Broken off: ${problem.message}`;
  }
  state.stop = null;
  running(false);
  await tellState().catch(() => {});
  if (state.found) await search(state.found.query);
}

function running(on) {
  $("running").hidden = !on;
  $("simulate").setAttribute("aria-checked", String(on));
  $("simulate").textContent = on ? "Stop" : "Run 1 000 searches";
  $("users").disabled = on;
  if (on) state.curve = [];
}

function step(now) {
  $("simbar").max = now.total;
  $("simbar").value = now.done;
  $("simtext").textContent = `${whole(now.done)} of ${whole(now.total)}: “${now.query}” for ${now.wanted}`;
  tellModel(now.feedback, now.version, now.weights);
  // The list on screen tightens too, unless somebody is marking it.
  if (state.found && !state.marked.size && Date.now() - state.searched > 2000) search(state.found.query);
  if (now.done < FIRST_POINT && now.done < now.total) return;
  state.curve.push(now);
  const curve = state.curve;
  lineChart($("curve"), {
    label: "How well the lists serve the simulated users", at: (i) => `search ${whole(curve[i].done)}`, format: percent, from: 0, to: 1,
    lines: [{ name: "NDCG@10", values: curve.map((c) => c.ndcg) }, { name: "BM25's NDCG@10", values: curve.map((c) => c.bm25) }, { name: "wanted one first", values: curve.map((c) => c.first) }],
  });
}

// Views.

async function show(view) {
  state.view = view;
  for (const name of VIEWS) {
    $(name).hidden = name !== view;
    $(`tab-${name}`).setAttribute("aria-selected", String(name === view));
    $(`tab-${name}`).tabIndex = name === view ? 0 : -1;
  }
  mark();
  const found = state.found;
  if (!found?.results.length || view === "results") return;
  try {
    if (view === "blocks") {
      const address = `impressions/playground/${found.number}`;
      const text = await ask(suited(`${address}/drawing.svg`), { as: "text" });
      if (state.found === found) showDrawing($("drawing"), text, $("said"), explainer(`${address}/pairs`));
    } else {
      compare(await ask("play/compare", posted({ query: found.query })));
    }
  } catch (problem) {
    put($(view === "blocks" ? "drawing" : "compare"), h("p", { class: "empty" }, problem.message));
  }
}

const WHY = {
  PairRank: "Keeps the orders it has found, draws the open ones (amber) by chance.",
  Greedy: "Always by score: never finds out what it does not show.",
  BM25: "The order of the words alone, from which the candidates come.",
  Random: "Learns from everything, serves nobody.",
};

function compare({ lists }) {
  put($("compare"), h("div", { class: "side" }, lists.map((list) =>
    h("section", {}, h("h3", {}, list.name), h("p", { class: "why" }, WHY[list.name]),
      h("ol", {}, list.results.map((hit, i) =>
        h("li", { class: list.name === "PairRank" && hit.size > 1 ? "open" : null, title: hit.summary },
          h("span", { class: "place" }, String(i + 1)), h("span", { class: "mono" }, dotted(hit.id)))))))));
}

// Wiring.

$("search").addEventListener("submit", (event) => {
  event.preventDefault();
  search($("query").value.trim());
});
for (const button of $("examples").querySelectorAll("button")) button.addEventListener("click", () => search(button.textContent));
VIEWS.forEach((view, i) => {
  const tab = $(`tab-${view}`);
  tab.addEventListener("click", () => show(view));
  tab.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const next = VIEWS[(i + by + VIEWS.length) % VIEWS.length];
    show(next);
    $(`tab-${next}`).focus();
  });
});
$("learn").addEventListener("click", learn);
$("clear").addEventListener("click", () => { state.marked.clear(); mark(); });
$("simulate").addEventListener("click", simulate);
$("export").addEventListener("click", (event) => download(event, $("learnt")));
$("reset").addEventListener("click", async () => {
  if (!sure($("reset"), "Delete what was learned?")) return;
  state.marks.clear();
  $("lesson").hidden = true;
  await ask("play/reset", posted({}));
  state.curve = [];
  put($("curve"));
  $("simtext").textContent = "";
  await tellState();
  if (state.found) await search(state.found.query);
});
show("results");

const asked = new URLSearchParams(location.search).get("q"); // now: a search that is begun while waiting changes it
tellState().catch(() => {}).then(() => asked && !state.searched && search(asked));

// Others may teach the same ranker; the stream also tells whether the server is there.
let known = -1;
follow("v1/stream", (name, data) => {
  const row = name === "rankers" && data.rankers.find((ranker) => ranker.name === "playground");
  if (!row || row.model_version === known) return;
  known = row.model_version;
  if (!state.stop) tellState().catch(() => {});
}, pulse);
