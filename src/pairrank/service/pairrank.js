// Sends clicks to a PairRank service, also when the click leaves the page. No dependencies.
//
//   <script src="https://rank.example/pairrank.js" data-ranker="search"></script>
//   <ol data-impression="42-9f…"><li data-document="d7"><a href="…">…</a></li>…</ol>
//
// Every click inside [data-document] within [data-impression] becomes one event. Or call pairrank.click(impression, document).
(function () {
  "use strict";
  var script = document.currentScript;
  var base = script.src.replace(/\/pairrank\.js.*$/, "");
  var ranker = script.dataset.ranker;
  function unique() {
    return window.crypto && crypto.randomUUID ? crypto.randomUUID() : Date.now() + "-" + Math.random().toString(36).slice(2);
  }
  function click(impression, documentId) {
    var body = JSON.stringify([
      { event_id: unique(), impression_id: impression, document_id: documentId, type: "click" },
    ]);
    var url = base + "/v1/rankers/" + encodeURIComponent(ranker) + "/events";
    // Text needs no preflight, and a beacon outlives the page.
    if (navigator.sendBeacon && navigator.sendBeacon(url, body)) return;
    fetch(url, { method: "POST", body: body, keepalive: true, mode: "no-cors" });
  }
  function clicked(event) {
    if (event.button > 1) return; // the right one opens a menu
    var path = event.composedPath(); // from within web components, too, which hide it from event.target.closest()
    function above(name) {
      while (path.length && !(path[0].dataset && name in path[0].dataset)) path.shift();
      return path.length && path[0].dataset[name];
    }
    var item = above("document"), list = above("impression");
    if (list) click(list, item);
  }
  document.addEventListener("click", clicked, true);
  document.addEventListener("auxclick", clicked, true); // the middle button, which opens the page beside this one
  window.pairrank = { click: click };
})();
