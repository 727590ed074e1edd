// Asks for a key where the service has keys; it stays in this tab's session and goes out in a header.

import { $, ask } from "./dom.js";

$("keyform").addEventListener("submit", async (event) => {
  event.preventDefault();
  sessionStorage.setItem("pairrank-key", $("key").value);
  try {
    await ask("/live/rankers");
    await import("./live.js");
  } catch (problem) {
    sessionStorage.removeItem("pairrank-key");
    $("key").setCustomValidity(problem.message);
    $("key").reportValidity();
    $("key").setCustomValidity("");
  }
});
if (sessionStorage.getItem("pairrank-key")) $("keyform").requestSubmit();
