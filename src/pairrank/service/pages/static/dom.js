// Elements from values. Text is always set as text: nothing that a document or a query says can become markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** An HTML element; attributes that are functions named on… become listeners. */
export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** An SVG element. */
export function s(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

/** Put children in place of whatever an element holds. */
export function put(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
}

export const $ = (id) => document.getElementById(id);

export const percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(value * 100)}\u00a0%`);
export const fixed = (value, digits = 2) =>
  value === null || value === undefined ? "–" : value.toFixed(digits).replace("-", "−");
export const whole = (value) => Math.round(value).toLocaleString("en").replaceAll(",", " ");

export function seconds(value) {
  if (value < 1) return value < 0.01 ? "0 s" : `${value.toFixed(2)} s`;
  if (value < 90) return `${Math.round(value)} s`;
  if (value < 5400) return `${Math.round(value / 60)} min`;
  return value < 129600 ? `${Math.round(value / 3600)} h` : `${Math.round(value / 86400)} days`;
}

const MOMENT = { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false };
/** Day and time of the reader's own clock, with the year where it is another one. */
export function clock(at) {
  const when = new Date(at * 1000);
  const year = when.getFullYear() === new Date().getFullYear() ? {} : { year: "numeric" };
  return when.toLocaleString("en-GB", { ...MOMENT, ...year }).replace(",", "");
}

/** Make every Copy button under `host` copy the text of the element before it: a command, with the address that the reader came by. */
export function copyable(host) {
  for (const button of host.querySelectorAll("button.copy")) {
    const command = button.previousElementSibling; // the server does not know what a proxy puts before its paths
    command.textContent = command.textContent.replace(/https?:\/\/[^/]+\/(?=v1\/)/, () => new URL(".", location));
    button.hidden = false;
    button.onclick = async () => {
      try {
        await navigator.clipboard.writeText(command.textContent);
      } catch { // no clipboard outside of https and localhost: mark the text instead
        getSelection().selectAllChildren(command);
        button.textContent = "Marked; press Ctrl+C";
        return;
      }
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    };
  }
}

/** What the server answers to who has the key that the reader gave, or an Error with the server's own sentence. */
export async function request(address, options = {}) {
  const key = sessionStorage.getItem("pairrank-key");
  const headers = { ...(key ? { Authorization: `Bearer ${key}` } : {}), ...options.headers };
  const answer = await fetch(address, { ...options, headers });
  if (answer.ok) return answer;
  let sentence = `the server answered ${answer.status}`;
  try {
    const body = await answer.json();
    sentence = body.message ?? sentence;
  } catch { /* no JSON: the status says it */ }
  const problem = new Error(sentence);
  problem.status = answer.status;
  throw problem;
}

/** The answer itself, JSON unless it is asked for `as` a "text" or a "blob". */
export async function ask(address, options = {}) {
  return (await request(address, options))[options.as ?? "json"]();
}

/** The options of a request that sends JSON. */
export const posted = (body) => ({ method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

/** A link cannot send a key: where there is one, fetch the file of a link that was clicked. Problems go into `said`. */
export async function download(event, said) {
  if (!sessionStorage.getItem("pairrank-key")) return;
  event.preventDefault();
  const { href, download: name } = event.currentTarget;
  try {
    const link = h("a", { href: URL.createObjectURL(await ask(href, { as: "blob" })), download: name });
    link.click();
    URL.revokeObjectURL(link.href);
  } catch (problem) {
    said.textContent = problem.message;
  }
}

/** Whether a button was pressed for the second time: the first press asks; after a while it is as if nobody had. */
export function sure(button, question) {
  const asked = "sure" in button.dataset;
  const calm = () => {
    button.textContent = button.dataset.sure ?? button.textContent;
    delete button.dataset.sure;
  };
  if (asked) calm();
  else {
    button.dataset.sure = button.textContent;
    button.textContent = question;
    setTimeout(calm, 5000);
  }
  return asked;
}

/** Say at the top whether the server is there: "live" or "waiting". */
export function pulse(now) {
  $("pulse").dataset.state = now;
  put($("pulse"), h("span", {}, now === "live" ? "live" : "waiting for the server"));
}
