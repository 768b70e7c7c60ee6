/**
 * Tidegate in the browser: submit a task, follow it live, cancel it. One file, no dependencies, no build.
 *
 *     import { Tidegate } from "/api/v1/tidegate.js";
 *
 *     const queue = new Tidegate({ token: "tg_…" });
 *     const task = await queue.submit("greet", { name: "Ada" });
 *     for await (const event of queue.follow(task.task_id)) console.log(event);
 *
 * It finds the API by its own URL, under any mount path. See docs/how-to/follow-from-a-page.md.
 */

const HERE = new URL(".", import.meta.url).href;

const FINAL = new Set(["succeeded", "cancelled", "dead"]);

/** Shortest and longest wait before a reconnect, and time between two polls, in milliseconds. */
const SOONEST = 500;
const LATEST = 10_000;
const POLL = 1000;
/** A stream without any bytes for this long after its start is buffered by a proxy. */
const FIRST_BYTES = 10_000;
/** A stream without any bytes for this long later is dead: the server sends a keep-alive every 10 s. */
const SILENCE = 30_000;
const REQUEST = 60_000;
/** The server keeps a key for 7 days; the client stops to use it a day earlier. */
const KEPT = 6 * 24 * 3_600_000;

/** After this many buffered streams in a row, the task is polled until its end. */
const MOST_HELD_UP = 2;
const TRIES = 6;

/** The server refused a request. `problem` is its response (RFC 9457); `kind` is the last part of its type. */
export class TidegateError extends Error {
  constructor(status, problem = {}, retryAfter = 0) {
    super(problem.detail || problem.title || `the server responded with ${status}`);
    this.name = "TidegateError";
    this.status = status;
    this.problem = problem;
    this.kind = String(problem.type ?? "").split("/").pop();
    this.retryAfter = retryAfter;
  }

  /** Whether the same request may succeed later. */
  get isPassing() {
    return this.status >= 500 || [408, 425, 429].includes(this.status);
  }
}

class HeldUpError extends Error {}

export class Tidegate {
  #url;
  #token;
  #kept;

  /**
   * @param {object} [options]
   * @param {string} [options.url] URL of the API; default: next to this module
   * @param {string | (() => string | Promise<string>)} [options.token] sent as a bearer token; a function is
   *   called before each request. Without a token, the browser's cookies identify the user.
   * @param {Storage} [options.storage] where keys are stored; default: the storage of this tab
   */
  constructor({ url = HERE, token, storage } = {}) {
    this.#url = new URL(url.endsWith("/") ? url : `${url}/`, globalThis.document?.baseURI ?? HERE).href;
    this.#token = token;
    this.#kept = new Kept(`tidegate ${this.#url} `, storage);
  }

  /**
   * Submit a task; resolves to `{ task_id, created, location }` once it is on the server's disk.
   *
   * The Idempotency-Key of the request is stored in the tab. So the same submit from the same place, after a
   * reload or a lost response, returns the same task. The key is dropped when the task is known to be final,
   * when the place submits something else, or by `forget(place)`.
   *
   * @param {string} task name of the task function
   * @param {object | Array} [args] by name, or by position
   * @param {object} [options] `place`: which part of the page submits (default: the task's name); `signal`:
   *   an AbortSignal; all other options (labels, delay_seconds…) are sent with the request
   * @throws {TidegateError} the server refused it. Any other error: the server was not reached, and may have the task
   */
  async submit(task, args = {}, { place = task, signal, ...options } = {}) {
    const body = JSON.stringify({ task, args, ...options });
    const kept = this.#kept.read(place);
    return this.#send(place, kept?.body === body ? kept : { key: newKey(), body, at: Date.now() }, signal);
  }

  /** Return the task that a place submitted and that is not known to be final, as `submit` does; else null. */
  async resume(place, { signal } = {}) {
    const kept = this.#kept.read(place);
    if (kept === null) return null;
    if (!kept.task) return this.#send(place, kept, signal);
    return { ...kept.task, created: false };
  }

  /** Drop the key of a place: the next submit there is a new task. */
  forget(place) {
    this.#kept.drop(place);
  }

  /**
   * Yield the events of a task until its one `{ type: "end", state, run }`.
   *
   * Before it: `state`, `chunk` (`sequence`, `run`, `at`, `data`), `progress` and `reset`, as the HTTP API
   * sends them, each once, also when the connection breaks or the server restarts. If a proxy buffers
   * streams, the task is polled, and its chunks come with its end.
   *
   * @param {string} taskId the task's id
   * @param {object} [options] `after`: number of the last chunk that you have; `signal`: an AbortSignal
   * @throws {TidegateError} the task may not be followed, or does not exist
   */
  async *follow(taskId, { after = 0, signal } = {}) {
    const seen = new SeenEvents(after);
    let wait = SOONEST;
    let heldUp = 0;
    while (true) {
      const isPolled = heldUp >= MOST_HELD_UP;
      let least = isPolled ? POLL : 0;
      try {
        const events = isPolled ? this.#poll(taskId, seen, signal) : this.#stream(taskId, seen, signal);
        for await (const event of events) {
          wait = SOONEST;
          if (!isPolled) heldUp = 0;
          if (event.type === "closed") continue; // the stream ends: reconnect
          if (!seen.isNews(event)) continue;
          if (event.type === "end") this.#kept.dropTask(taskId);
          yield event;
          if (event.type === "end") return;
        }
      } catch (error) {
        signal?.throwIfAborted();
        if (error instanceof TidegateError && !error.isPassing) {
          if (error.status === 404) this.#kept.dropTask(taskId);
          throw error;
        }
        if (error instanceof HeldUpError || error.kind === "too-many-followers") heldUp += 1;
        least = Math.max(least, error.retryAfter ?? 0);
      }
      await pause(Math.max(wait * (1 + Math.random()), least), signal);
      wait = Math.min(wait * 2, LATEST);
    }
  }

  /** Cancel a task in any state; resolves to `cancelled`, `requested` (it runs) or `finished` (too late). */
  async cancel(taskId, { why = "", force = false, signal } = {}) {
    const body = JSON.stringify({ why, force });
    return (await this.#persist(`${address(taskId)}/cancel`, posted(body), signal)).answer;
  }

  /** Return the result of a task: `{ state, result, error }`; before its end, only its `state`. */
  async result(taskId, { signal } = {}) {
    return this.#persist(`${address(taskId)}/result`, { cache: "no-store" }, signal);
  }

  async #send(place, entry, signal) {
    this.#kept.write(place, entry); // before it is sent: the page may be reloaded at any time
    try {
      const task = await this.#persist("tasks", posted(entry.body, { "Idempotency-Key": `"${entry.key}"` }), signal);
      this.#kept.write(place, { ...entry, task });
      return task;
    } catch (error) {
      if (error instanceof TidegateError && !error.isPassing) this.#kept.drop(place);
      throw error;
    }
  }

  /** Send a request that is safe to repeat, several times if needed; return the JSON of its response. */
  async #persist(path, request, signal) {
    for (let tried = 1; ; tried += 1) {
      const limit = AbortSignal.timeout(REQUEST);
      try {
        return await (await this.#fetch(path, request, either(signal, limit))).json();
      } catch (error) {
        signal?.throwIfAborted();
        if (tried === TRIES || (error instanceof TidegateError && !error.isPassing)) throw error;
        await pause(Math.max(SOONEST * 2 ** (tried - 1), error.retryAfter ?? 0), signal);
      }
    }
  }

  async #fetch(path, request, signal) {
    const token = typeof this.#token === "function" ? await this.#token() : this.#token;
    const headers = { ...request.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
    const response = await fetch(this.#url + path, { ...request, headers, signal });
    if (response.ok) return response;
    const problem = await response.json().catch(() => ({}));
    const seconds = Number(response.headers.get("retry-after")) || 0;
    throw new TidegateError(response.status, problem, seconds * 1000);
  }

  /** Yield the events of one stream until it ends. */
  async *#stream(taskId, seen, signal) {
    const silence = new Silence(FIRST_BYTES);
    try {
      const headers = seen.after ? { "Last-Event-ID": String(seen.after) } : {};
      const request = { headers, cache: "no-store" };
      const response = await this.#fetch(`${address(taskId)}/events`, request, either(signal, silence.signal));
      const type = response.headers.get("content-type") ?? "";
      if (!response.body || !type.startsWith("text/event-stream")) throw new HeldUpError(`it came as ${type}`);
      yield* eventsOf(response.body, () => silence.isBroken(SILENCE));
    } finally {
      silence.end();
    }
  }

  /** Poll the status once and yield its events; of a final task also its whole stream, which ends by itself. */
  async *#poll(taskId, seen, signal) {
    const status = await (await this.#fetch(address(taskId), { cache: "no-cache" }, signal)).json();
    const { state, run, progress } = status;
    if (!FINAL.has(state)) {
      yield { type: "state", state, run };
      if (progress) yield { type: "progress", ...progress };
      return;
    }
    try {
      yield* this.#stream(taskId, seen, signal);
    } catch (error) {
      signal?.throwIfAborted();
    }
    yield { type: "end", state, run };
  }
}

/** The events that a follower has, so that none is yielded twice. */
class SeenEvents {
  #last = new Map();

  constructor(after) {
    this.after = Number(after);
  }

  isNews(event) {
    if (event.type === "chunk") {
      const sequence = Number(event.sequence);
      if (sequence <= this.after) return false;
      this.after = sequence;
      return true;
    }
    if (event.type === "reset") this.after = 0;
    const text = JSON.stringify(event);
    const isNews = event.type === "reset" || this.#last.get(event.type) !== text;
    this.#last.set(event.type, text);
    return isNews;
  }
}

/** Keys of submits by place, in the tab's storage; in memory if the browser has no storage. */
class Kept {
  #prefix;
  #storage;
  #memory = new Map();

  constructor(prefix, storage) {
    this.#prefix = prefix;
    try {
      this.#storage = storage ?? globalThis.sessionStorage;
    } catch {
      this.#storage = null; // storage is forbidden here
    }
  }

  read(place) {
    try {
      const entry = this.#memory.get(place) ?? JSON.parse(this.#storage?.getItem(this.#prefix + place) ?? "null");
      return entry !== null && Date.now() - entry.at < KEPT ? entry : null;
    } catch {
      return null;
    }
  }

  write(place, entry) {
    this.#memory.set(place, entry);
    try {
      this.#storage?.setItem(this.#prefix + place, JSON.stringify(entry));
    } catch {
      // the storage is full: the key lasts as long as the page
    }
  }

  drop(place) {
    this.#memory.delete(place);
    this.#storage?.removeItem(this.#prefix + place);
  }

  dropTask(taskId) {
    for (const place of this.#places()) {
      if (this.read(place)?.task?.task_id === taskId) this.drop(place);
    }
  }

  #places() {
    const kept = Array.from({ length: this.#storage?.length ?? 0 }, (_, index) => this.#storage.key(index));
    const named = kept.filter((name) => name?.startsWith(this.#prefix)).map((name) => name.slice(this.#prefix.length));
    return new Set([...named, ...this.#memory.keys()]);
  }
}

/** Aborts a stream that brings no bytes for too long. */
class Silence {
  #controller = new AbortController();
  #timer;

  constructor(limit) {
    this.#arm(limit, new HeldUpError("nothing came"));
  }

  get signal() {
    return this.#controller.signal;
  }

  isBroken(limit) {
    this.#arm(limit, new DOMException("no sign of life", "TimeoutError"));
  }

  end() {
    clearTimeout(this.#timer);
    this.#controller.abort();
  }

  #arm(limit, reason) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#controller.abort(reason), limit);
  }
}

/** Yield the server-sent events of a body, as `{ type, ...data }`. */
async function* eventsOf(body, onBytes) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let type = "";
  let data = "";
  while (true) {
    const { done, value } = await reader.read();
    if (done) return;
    onBytes();
    const lines = (rest + value).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("event:")) type = line.slice(6).trim();
      else if (line.startsWith("data:")) data += line.slice(5);
      else if (line === "" && type) {
        yield { type, ...JSON.parse(data) };
        type = data = "";
      }
    }
  }
}

function address(taskId) {
  return `tasks/${encodeURIComponent(taskId)}`;
}

function posted(body, headers = {}) {
  return { method: "POST", body, headers: { "Content-Type": "application/json", ...headers } };
}

/** Return a unique key. `crypto.randomUUID` is missing on plain http. */
function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function either(signal, other) {
  return signal ? AbortSignal.any([signal, other]) : other;
}

/** Wait some milliseconds, or throw the signal's reason as soon as it is aborted. */
async function pause(milliseconds, signal) {
  signal?.throwIfAborted();
  await new Promise((resolve) => {
    const wake = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", wake);
      resolve();
    };
    const timer = setTimeout(wake, milliseconds);
    signal?.addEventListener("abort", wake);
  });
  signal?.throwIfAborted();
}
