// Server-sent events over fetch, so that a key can travel in a header; joins again by itself after a restart.

const FIRST_WAIT = 500;
const LONGEST_WAIT = 4000;
const SILENCE = 20000; // the server says something every ten seconds; a connection silent for longer is dead

/** Call `onEvent(name, data)` for each event and `onState("live" | "waiting")` when the connection comes or goes. */
export function follow(address, onEvent, onState) {
  let stopped = false;
  let controller = null;

  async function listen() {
    controller = new AbortController();
    const key = sessionStorage.getItem("pairrank-key");
    const headers = { Accept: "text/event-stream", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
    const answer = await fetch(address, { headers, signal: controller.signal, cache: "no-store" });
    if (!answer.ok) throw new Error(`the stream answered ${answer.status}`);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    onState("live");
    for (;;) {
      const watchdog = setTimeout(() => controller.abort(), SILENCE);
      const { value, done } = await reader.read().finally(() => clearTimeout(watchdog));
      if (done) return;
      text += value;
      let end;
      while ((end = text.indexOf("\n\n")) >= 0) {
        dispatch(text.slice(0, end));
        text = text.slice(end + 2);
      }
    }
  }

  function dispatch(block) {
    let name = "message";
    const data = [];
    for (const line of block.split("\n")) {
      if (line.startsWith("event:")) name = line.slice(6).trim();
      else if (line.startsWith("data:")) data.push(line.slice(5).trim());
    }
    if (data.length) onEvent(name, JSON.parse(data.join("\n")));
  }

  (async () => {
    let wait = FIRST_WAIT;
    while (!stopped) {
      const began = Date.now();
      try {
        await listen();
      } catch { /* refused, reset or silent: the same cure */ }
      if (stopped) return;
      onState("waiting");
      wait = Date.now() - began > LONGEST_WAIT ? FIRST_WAIT : Math.min(wait * 1.6, LONGEST_WAIT);
      await new Promise((resume) => setTimeout(resume, wait));
    }
  })();

  return () => {
    stopped = true;
    controller?.abort();
  };
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
