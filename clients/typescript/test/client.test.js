// Against a real service: PAIRRANK_URL=http://127.0.0.1:8000 npm test
import assert from "node:assert/strict";
import { test } from "node:test";
import { PairRank, ServiceError, UnreachableError } from "../dist/index.js";

const client = new PairRank(process.env.PAIRRANK_URL);

test("rank and feedback", async () => {
  const made = await client.create("node", { n_features: 2, feature_names: ["age", "match"] });
  assert.equal(made.n_features, 2);
  const shown = await client.rank("node", { a: [0, 1], b: { age: 1, match: 0 } }, { k: 2, query_id: "boots" });
  assert.deepEqual(shown.ranking.map((row) => row.id).sort(), ["a", "b"]);
  assert.equal(await client.feedback("node", shown.impression_id, ["a"]), "accepted");
  assert.equal(await client.feedback("node", shown.impression_id, ["a"]), "duplicate");
  assert.equal((await client.ranker("node")).feedback_count, 1);
});

test("a Map keeps the order in which documents come", async () => {
  const sent = [];
  const listens = new PairRank(process.env.PAIRRANK_URL, {
    fetch: (address, request) => {
      sent.push(...JSON.parse(request.body).documents.map((one) => one.id));
      return fetch(address, request);
    },
  });
  const ids = ["31", "boots", "7", "12"];
  await listens.rank("node", new Map(ids.map((id) => [id, [0, 1]])));
  assert.deepEqual(sent, ids);
});

test("explain", async () => {
  const shown = await client.rank("node", { a: [0, 1], b: [1, 0] }, { explain: true });
  assert.deepEqual(Object.keys(shown.explanation.contributions.a), ["age", "match"]);
  assert.deepEqual(shown.explanation.neighbours.map((pair) => [pair.above, pair.below].sort()), [["a", "b"]]);
  assert.equal((await client.rank("node", { a: [0, 1] })).explanation, undefined);
});

test("events", async () => {
  const shown = await client.rank("node", { a: [0, 1], b: [1, 0] });
  const event = { impression_id: shown.impression_id, document_id: "b", event_id: "once" };
  assert.deepEqual((await client.events("node", [event, event])).map((one) => one.status), ["accepted", "duplicate"]);
  const own = Object.getOwnPropertyDescriptor(globalThis, "crypto");
  Object.defineProperty(globalThis, "crypto", { value: undefined, configurable: true }); // as Node 18 has it
  const more = [{ ...event, document_id: "a" }, { ...event, type: "reformulation" }].map(({ event_id, ...rest }) => rest);
  const answers = await client.events("node", more);
  Object.defineProperty(globalThis, "crypto", own ?? { value: undefined, configurable: true });
  assert.deepEqual(answers.map((one) => one.status), ["accepted", "accepted"]);
  assert.notEqual(answers[0].event_id, answers[1].event_id);
});

test("rerank", async () => {
  const documents = ["Coffee is hot.", { text: "To brew green tea, steep it.", title: "Tea" }];
  const answer = await client.rerank({ model: "texts", query: "green tea", documents, top_n: 1 });
  assert.equal(answer.results.length, 1);
  assert.equal(await client.feedback("texts", answer.id, [String(answer.results[0].index)]), "accepted");
});

test("refusals are errors with a sentence", async () => {
  await assert.rejects(client.rank("nobody", { a: [1] }), (problem) => {
    assert.ok(problem instanceof ServiceError);
    assert.equal(problem.status, 404);
    assert.equal(problem.code, "unknown");
    return /no ranker is called 'nobody'/.test(problem.message);
  });
});

test("an address where nobody answers", async () => {
  const nobody = new PairRank("http://127.0.0.1:1", { retries: 1 });
  await assert.rejects(nobody.ranker("a"), UnreachableError);
});

test("it tries again when the service is busy", async () => {
  const statuses = [503, 429, 502];
  const busy = new PairRank(process.env.PAIRRANK_URL, {
    fetch: (...words) => {
      const status = statuses.shift();
      return status ? Promise.resolve(new Response("{}", { status })) : fetch(...words);
    },
  });
  assert.equal((await busy.ranker("node")).n_features, 2);
});

test("an answer that breaks off is asked for again, and one that is no JSON is a refusal", async () => {
  const broken = new ReadableStream({ start: (body) => body.error(new TypeError("terminated")) });
  const answers = [new Response(broken), new Response("<html>")];
  const through = { fetch: (...words) => Promise.resolve(answers.shift() ?? fetch(...words)), timeout: undefined };
  const flaky = new PairRank(process.env.PAIRRANK_URL, through);
  await assert.rejects(flaky.ranker("node"), (problem) => problem instanceof ServiceError && /no JSON/.test(problem.message));
  assert.equal(answers.length, 0);
  assert.equal((await flaky.ranker("node")).n_features, 2);
});
