/**
 * A small client for the service, for Node and browsers: fetch alone, types from the service's own OpenAPI, retries that
 * are safe. Feedback that was taken answers "duplicate", an event is known by its id, a ranker is created once; a rank
 * request that is sent twice at worst leaves an impression that expires.
 */
import type { components, paths } from "./schema.js";

type Schemas = components["schemas"];
type Json<T> = T extends { content: { "application/json": infer Body } } ? Body : never;
type Posted<Path extends keyof paths> = paths[Path] extends { post: { requestBody: infer Body } } ? Json<Body> : never;
type Put<Path extends keyof paths> = paths[Path] extends { put: { requestBody: infer Body } } ? Json<Body> : never;

export type Ranking = Schemas["RankAnswer"];
export type Explanation = Schemas["ExplanationAnswer"];
export type RankRequest = Posted<"/v1/rankers/{name}/rank">;
export type RerankRequest = Posted<"/v1/rerank">;
export type Reranking = Schemas["RerankAnswer"];
export type Ranker = Schemas["RankerAnswer"];
export type NewRanker = Put<"/v1/rankers/{name}">;
export type Event = Posted<"/v1/rankers/{name}/events">[number];
/** Of one document: numbers, or by name where the ranker has feature names; null where one is missing. */
export type Features = (number | null)[] | Record<string, number | null>;

/** The service refused: `status` is that of HTTP, `code` one word for programs, the message a sentence. */
export class ServiceError extends Error {
  constructor(readonly status: number, readonly code: string, message: string) {
    super(message);
    this.name = "ServiceError";
  }
}

/** The service could not be reached, or could not store anything, however often it was tried. */
export class UnreachableError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "UnreachableError";
  }
}

export interface Options {
  /** Access key, where the service demands one. Not for browsers: see `public_events` of the service. */
  key?: string;
  /** Milliseconds for one attempt; 10,000 unless given. */
  timeout?: number;
  /** Attempts after the first when the service cannot be reached or is busy; 5 unless given. */
  retries?: number;
  /** In place of the global `fetch`. */
  fetch?: typeof fetch;
}

export class PairRank {
  readonly #url: string;
  readonly #options: Options;

  constructor(url = "http://127.0.0.1:8000", options: Options = {}) {
    this.#url = url.replace(/\/+$/, "");
    this.#options = options;
  }

  /**
   * Order documents: features by id. Experiments and launches take the documents' own order for the present system's, and
   * an object puts keys that are whole numbers first, by size: give such ids in a Map. With `explain` the answer has an
   * explanation.
   */
  rank(
    ranker: string,
    documents: Record<string, Features> | Map<string, Features>,
    more: Omit<RankRequest, "documents"> = {},
  ): Promise<Ranking> {
    const pairs = documents instanceof Map ? [...documents] : Object.entries(documents);
    const rows = pairs.map(([id, features]) => ({ id, features }));
    return this.#call("POST", ["rankers", ranker, "rank"], { ...more, documents: rows });
  }

  /** The clicks of an impression, whole and final. */
  async feedback(ranker: string, impressionId: string, clicks: string[]): Promise<"accepted" | "duplicate"> {
    const body = { impression_id: impressionId, clicks };
    return (await this.#call<{ status: "accepted" | "duplicate" }>("POST", ["rankers", ranker, "feedback"], body)).status;
  }

  /** Events as they happen; a status for each. Give `event_id` if you may send the same one again. */
  events(
    ranker: string,
    events: (Omit<Event, "event_id" | "type"> & Partial<Event>)[],
  ): Promise<Schemas["EventAnswer"][]> {
    const whole = events.map((event) => ({ type: "click", event_id: unique(), ...event }));
    return this.#call("POST", ["rankers", ranker, "events"], whole);
  }

  /** Order texts for a query; `id` of the answer is the impression's. */
  rerank(request: RerankRequest): Promise<Reranking> {
    return this.#call("POST", ["rerank"], request);
  }

  /** Create a ranker, or find the one that is there with the same configuration. */
  create(name: string, ranker: NewRanker): Promise<Ranker> {
    return this.#call("PUT", ["rankers", name], ranker);
  }

  /** A ranker's description. */
  ranker(name: string): Promise<Ranker> {
    return this.#call("GET", ["rankers", name]);
  }

  async #call<Answer>(method: string, path: string[], body?: unknown): Promise<Answer> {
    const { fetch = globalThis.fetch, key, retries = 5, timeout = 10_000 } = this.#options;
    const address = [this.#url, "v1", ...path.map(encodeURIComponent)].join("/");
    const headers: Record<string, string> = { "Content-Type": "application/json" };
    if (key) headers["Authorization"] = `Bearer ${key}`;
    const sent = body === undefined ? undefined : JSON.stringify(body);
    let trouble = "it was not tried";
    for (let attempt = 0; attempt <= retries; attempt++) {
      if (attempt) await pause((0.5 + Math.random() / 2) * Math.min(50 * 2 ** attempt, 2000));
      let response: Response;
      let text: string;
      try {
        response = await fetch(address, { method, headers, body: sent, signal: AbortSignal.timeout(timeout) });
        text = await response.text(); // an answer may break off
      } catch (problem) {
        trouble = String(problem);
        continue;
      }
      const answer = parsed(text);
      if (response.ok && answer !== undefined) return answer as Answer;
      const refused = refusal(response.status, answer as Partial<Schemas["Problem"]>);
      if (![429, 502, 503, 504].includes(response.status)) throw refused; // a proxy says 502 and 504 while we restart
      trouble = refused.message;
    }
    throw new UnreachableError(`gave up after ${retries + 1} attempts: ${trouble}`);
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function refusal(status: number, told?: Partial<Schemas["Problem"]> | null): ServiceError {
  const otherwise = `the service answered ${status}${told === undefined ? " and no JSON" : ""}`;
  return new ServiceError(status, told?.error ?? "http", told?.message ?? otherwise);
}

/** Node 18 has no `crypto`, and pages without TLS have no `randomUUID`. */
function unique(): string {
  return globalThis.crypto?.randomUUID?.() ?? `${Date.now()}-${Math.random().toString(36).slice(2)}`;
}

function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
