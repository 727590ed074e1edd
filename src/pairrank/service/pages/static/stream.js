// Server-sent events over fetch, so that a key can travel in a header; joins again by itself after a restart.

import { request } from "./dom.js";

const FIRST_WAIT = 500;
const LONGEST_WAIT = 4000;
const SILENCE = 20000; // the server says something twice a second; a connection silent for longer is dead

/** The events of an answer as they come, each as [name, data]; `controller` breaks off one that is silent for too long. */
export async function* events(answer, controller) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const watchdog = setTimeout(() => controller.abort(), SILENCE);
    const { value, done } = await reader.read().finally(() => clearTimeout(watchdog));
    if (done) return;
    const blocks = (text + value).split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(block) ?? []; // else only a sign of life
      if (name) yield [name, JSON.parse(data)];
    }
  }
}

/** Call `onEvent(name, data)` for each event and `onState("live" | "waiting")` when the connection comes or goes. */
export async function follow(address, onEvent, onState) {
  let wait = FIRST_WAIT;
  for (;;) {
    const began = Date.now();
    const controller = new AbortController();
    try {
      const options = { headers: { Accept: "text/event-stream" }, signal: controller.signal, cache: "no-store" };
      const answer = await request(address, options);
      onState("live");
      for await (const [name, data] of events(answer, controller)) onEvent(name, data);
    } catch { /* refused, reset or silent: the same cure */ }
    onState("waiting");
    wait = Date.now() - began > LONGEST_WAIT ? FIRST_WAIT : Math.min(wait * 1.6, LONGEST_WAIT);
    await new Promise((resume) => setTimeout(resume, wait));
  }
}

/** `work`, at most once in `pause` milliseconds and never twice at once; the last call is never lost. */
export function throttle(work, pause) {
  let running = false;
  let again = false;
  return async function run() {
    if (running) {
      again = true;
      return;
    }
    running = true;
    do {
      again = false;
      await work();
      await new Promise((resume) => setTimeout(resume, pause));
    } while (again);
    running = false;
  };
}
