// The playground: a search, its bands, and what the ranker has learned. A person's clicks go to the public endpoint.

import { $, ask, h, percent, put, whole } from "/static/dom.js";
import { lineChart } from "/static/chart.js";
import { drawWeights } from "/static/weights.js";
import { explainer, showDrawing, suited } from "/static/drawing.js";
import { follow } from "/static/stream.js";

const RANKER = "/v1/rankers/playground";
const VIEWS = ["results", "blocks", "compare"];
const state = { view: "results", found: null, marked: new Set(), places: new Map(), curve: [], searched: 0, stop: null };
const post = (address, body) =>
  ask(address, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

// Searching.

async function search(query) {
  state.searched = Date.now();
  $("query").value = query;
  history.replaceState(null, "", `/play?q=${encodeURIComponent(query)}`);
  try {
    showResults(await post("/play/search", { query }));
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
    if (!groups.length || groups.at(-1)[0].hit.block !== hit.block) groups.push([]);
    groups.at(-1).push({ hit, i });
  });
  return groups.map((group) => {
    const { size, block } = group[0].hit;
    const rest = size > group.length ? `, ${group.length} of them shown` : "";
    const text = size > 1 ? `${size} documents in open order${rest}` : "place kept";
    return h("li", { class: size > 1 ? "band open" : "band" },
      h("p", { class: "of" }, h("b", {}, `Block ${block + 1}`), h("span", {}, text)),
      h("ol", {}, group.map(({ hit, i }) => card(hit, i, before.get(hit.id)))));
  });
}

function card(hit, i, was) {
  const dot = hit.id.length - hit.name.length;
  const moved = was === undefined || was === i ? null
    : h("span", { class: was > i ? "move up" : "move down" }, was > i ? `▲ ${was - i}` : `▼ ${i - was}`, h("span", { class: "away" }, was > i ? " up" : " down"));
  const path = hit.id.endsWith(hit.name) ? [h("span", {}, dotted(hit.id.slice(0, dot))), hit.name] : dotted(hit.id);
  return h("li", { class: "hit" },
    h("span", { class: "place" }, String(i + 1)),
    h("div", { class: "what" },
      h("div", { class: "title" }, h("span", { class: "path" }, path), h("span", { class: "tag" }, hit.kind), moved),
      hit.signature ? h("div", { class: "signature", title: hit.signature }, hit.signature) : null,
      h("div", { class: "summary" }, hit.summary)),
    h("button", { type: "button", class: "useful", "aria-pressed": "false", "aria-label": `Useful: ${hit.id}`, "data-id": hit.id, onclick: toggle }, "Useful"));
}

/** A dotted name that a line may break after its dots. */
const dotted = (name) => name.split(/(?<=\.)/).flatMap((part) => [part, h("wbr")]);

// Learning.

function toggle(event) {
  const { id } = event.currentTarget.dataset;
  if (!state.marked.delete(id)) state.marked.add(id);
  mark();
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
  $("learn").disabled = true;
  try {
    await post(`${RANKER}/feedback`, { impression_id, clicks: [...state.marked] });
    await ask(`${RANKER}?wait=1`);
    await search(query);
    await tellState();
  } catch (problem) {
    $("marked").textContent = problem.message;
  } finally {
    $("learn").disabled = false;
  }
}

async function tellState() {
  const now = await ask("/play/state");
  $("indexing").hidden = now.ready;
  if (!now.ready) {
    $("indexbar").max = now.total;
    $("indexbar").value = now.done;
    $("indextext").textContent = `Reading the standard library's documentation, once for this machine: ${whole(now.done)} of ${whole(now.total)} files`;
    return false;
  }
  tellModel(now.feedback, now.version, now.weights);
  return true;
}

function tellModel(feedback, version, weights) {
  $("learnt").textContent = feedback ? `from ${whole(feedback)} searches; the line is one standard deviation` : "nothing yet";
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
    const key = sessionStorage.getItem("pairrank-key");
    const headers = { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
    const body = JSON.stringify({ users: $("users").value, searches: 1000 });
    const answer = await fetch("/play/simulate", { method: "POST", headers, body, signal: controller.signal });
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      text += value;
      const blocks = text.split("\n\n");
      text = blocks.pop();
      for (const block of blocks) last = JSON.parse(block.slice(block.indexOf("data:") + 5));
      if (last) step(last);
    }
    $("simtext").textContent = last ? `${whole(last.done)} searches done; the wanted document stood first in ${percent(last.first)} of the last ones.` : "";
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
  drawWeights($("weights"), now.weights);
  // The list on screen tightens too, unless somebody is marking it.
  if (state.found && !state.marked.size && Date.now() - state.searched > 2000) search(state.found.query);
  state.curve.push(now);
  const curve = state.curve;
  lineChart($("curve"), {
    label: "How well the lists serve the simulated users", at: (i) => `search ${whole(curve[i].done)}`, format: percent, from: 0, to: 1,
    lines: [{ name: "NDCG@10", values: curve.map((c) => c.ndcg) }, { name: "wanted one first", values: curve.map((c) => c.first) }],
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
      const address = `/impressions/playground/${found.number}`;
      const text = await ask(suited(`${address}/drawing.svg`), { text: true });
      if (state.found === found) showDrawing($("drawing"), text, $("said"), explainer(`${address}/pairs`));
    } else {
      compare(await post("/play/compare", { query: found.query }));
    }
  } catch (problem) {
    put($(view === "blocks" ? "drawing" : "compare"), h("p", { class: "empty" }, problem.message));
  }
}

const WHY = {
  PairRank: "Keeps the orders it has found, draws the open ones (amber) by chance.",
  Greedy: "Always by score: never finds out what it does not show.",
  Random: "Learns from everything, serves nobody.",
};

function compare({ lists }) {
  put($("compare"), h("div", { class: "three" }, lists.map((list) =>
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
$("export").addEventListener("click", async (event) => {
  if (!sessionStorage.getItem("pairrank-key")) return; // a plain link does
  event.preventDefault();
  const key = sessionStorage.getItem("pairrank-key");
  const answer = await fetch($("export").href, { headers: { Authorization: `Bearer ${key}` } });
  const link = h("a", { href: URL.createObjectURL(await answer.blob()), download: "playground.pairrank" });
  link.click();
  URL.revokeObjectURL(link.href);
});
$("reset").addEventListener("click", async () => {
  await post("/play/reset", {});
  state.curve = [];
  put($("curve"));
  $("simtext").textContent = "";
  await tellState();
  if (state.found) await search(state.found.query);
});
show("results");

(async () => {
  for (;;) {
    try {
      if (await tellState()) break;
    } catch { /* the server is starting */ }
    await new Promise((resume) => setTimeout(resume, 300));
  }
  const query = new URLSearchParams(location.search).get("q");
  if (query && !state.found) search(query);
})();

// Others may teach the same ranker; the stream also tells whether the server is there.
let known = -1;
follow("/v1/stream", (name, data) => {
  const row = name === "rankers" && data.rankers.find((ranker) => ranker.name === "playground");
  if (!row || row.model_version === known) return;
  known = row.model_version;
  if (!state.stop) tellState().catch(() => {});
}, (now) => {
  $("pulse").dataset.state = now;
  put($("pulse"), h("span", {}, now === "live" ? "live" : "waiting for the server"));
});
