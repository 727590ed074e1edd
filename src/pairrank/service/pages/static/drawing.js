// The block drawing inside a page: the server draws it, this adds what a pointer and a keyboard need.

import { h, put, ask, $ } from "./dom.js";

const INVITATION = "Point at a mark to learn what it means; choose a document to compare it with the others.";
const PHONE = matchMedia("(max-width: 640px)");

/** The address of a drawing that suits this screen. */
export const suited = (address) => `${address}${address.includes("?") ? "&" : "?"}embed=1${PHONE.matches ? "&compact=1" : ""}`;

/**
 * Show an SVG text in `host`. `explain(row)` promises the sentences that compare the document `row` with each other
 * one, by row number; `said` is where sentences are read out.
 */
export function showDrawing(host, text, said, explain) {
  const parsed = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  if (parsed.localName !== "svg") throw new Error("the server sent no drawing");
  const svg = document.adoptNode(parsed);
  const hint = $("hint") ?? document.body.appendChild(h("div", { id: "hint", class: "hint", hidden: true }));
  put(host, svg);
  const state = { picked: null, sentences: null };
  for (const mark of svg.querySelectorAll(".pr-document")) {
    mark.setAttribute("tabindex", "0");
    mark.setAttribute("role", "button");
    mark.setAttribute("aria-label", mark.getAttribute("data-why"));
  }
  const rowOf = (target) => target.closest(".pr-document, .pr-position")?.getAttribute("data-row") ?? null;

  function look(target) {
    const row = rowOf(target);
    if (row !== null && state.sentences && row !== state.picked) return state.sentences[Number(row)];
    return target.closest("[data-why]")?.getAttribute("data-why") ?? null;
  }

  function light(row) {
    for (const mark of svg.querySelectorAll("[data-pair]")) {
      const pair = mark.getAttribute("data-pair").split(" ");
      mark.setAttribute("data-dim", row === null || pair.includes(row) ? "no" : "yes");
    }
  }

  async function pick(row) {
    state.picked = state.picked === row ? null : row;
    state.sentences = null;
    for (const mark of svg.querySelectorAll(".pr-document")) {
      const chosen = mark.getAttribute("data-row") === state.picked;
      mark.classList.toggle("pr-picked", chosen);
      mark.setAttribute("aria-pressed", String(chosen));
    }
    light(state.picked);
    if (state.picked === null) {
      said.textContent = INVITATION;
      return;
    }
    said.textContent = "Chosen. Now point at another document, or move to it with Tab, to see why their order is kept or open.";
    state.sentences = await explain(Number(row));
  }

  svg.addEventListener("pointermove", (event) => {
    const why = look(event.target);
    hint.hidden = why === null;
    if (why === null) return;
    hint.textContent = why;
    const box = hint.getBoundingClientRect();
    hint.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
    hint.style.top = `${event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 12 : event.clientY + 18}px`;
    if (state.picked === null) light(rowOf(event.target));
  });
  svg.addEventListener("pointerleave", () => {
    hint.hidden = true;
    light(state.picked);
  });
  svg.addEventListener("click", (event) => {
    const row = rowOf(event.target);
    const why = look(event.target);
    if (row !== null) pick(row);
    else if (why) said.textContent = why;
  });
  svg.addEventListener("focusin", (event) => {
    said.textContent = look(event.target) ?? said.textContent;
  });
  svg.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    pick(rowOf(event.target));
  });
  said.textContent = INVITATION;
}

/** Draw again where the last drawing stands. Exported so that its time can be measured. */
export function redraw(text) {
  const host = document.querySelector(".drawing");
  showDrawing(host, text, h("p"), () => Promise.resolve(null));
}

/** Sentences for one row, asked for once. */
export function explainer(address) {
  const known = new Map();
  return (row) => {
    if (!known.has(row)) known.set(row, ask(`${address}${address.includes("?") ? "&" : "?"}row=${row}`).catch(() => null));
    return known.get(row);
  };
}
