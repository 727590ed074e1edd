// Asks for a key where the service has keys; it stays in this tab's session and goes out in a header.

import { $, ask } from "./dom.js";

async function open() {
  const next = $("main").dataset.next;
  const text = await ask(location.pathname + location.search, { as: "text" });
  const page = new DOMParser().parseFromString(text, "text/html");
  if (page.getElementById("keyform")) throw new Error("the key is not known");
  $("main").replaceWith(document.importNode(page.getElementById("main"), true));
  await import(new URL(next, document.baseURI));
}

async function attempt() {
  try {
    await open();
  } catch (problem) {
    sessionStorage.removeItem("pairrank-key");
    $("keysaid").textContent = `This key does not open the page: ${problem.message}.`;
    $("keysaid").hidden = false;
    $("key").setAttribute("aria-invalid", "true");
    $("key").select();
  }
}

$("keyform").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("pairrank-key", $("key").value.trim());
  attempt();
});
if (sessionStorage.getItem("pairrank-key")) attempt();
