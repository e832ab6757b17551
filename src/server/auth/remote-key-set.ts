import type { Clock, Timer } from "../../async/clock.ts";
import { errorMessage } from "../../base/error-message.ts";
import type { ServerLog } from "../host-services.ts";
import { type KeySet, parseKeySet } from "./key-set.ts";

/** Interval of the fetches. A key that the issuer withdraws is invalid after this time. */
export const KEY_SET_REFRESH_MS = 5 * 60_000;
/** Minimum time between two fetches, so that tokens with invented keys cause no load. */
export const KEY_SET_COOLDOWN_MS = 30_000;
/** How long the server uses fetched keys while the URL fails. Longer than an outage of an issuer. */
export const KEY_SET_MAX_AGE_MS = 24 * 60 * 60_000;
/** Maximum time of a fetch. A client with an unknown key waits for it. */
export const KEY_SET_FETCH_TIMEOUT_MS = 5_000;
/** Maximum size of a response, about 100 RSA keys with certificates. */
export const MAX_KEY_SET_BYTES = 256 * 1024;

export interface RemoteKeySetOptions {
  url: string;
  clock: Clock;
  log: ServerLog;
  /** Called when the keys are no longer the same. */
  onChanged: () => void;
}

/** The key set at a URL: fetched at the start, periodically, and for a token with an unknown key. */
export class RemoteKeySet implements Disposable {
  readonly #options: RemoteKeySetOptions;
  #fetched: { keySet: KeySet; text: string; atMs: number } | null = null;
  #attemptedAtMs = Number.NEGATIVE_INFINITY;
  #hasFailed = false;
  #pending: Promise<void> | null = null;
  #timer: Timer | null = null;
  #isClosed = false;

  constructor(options: RemoteKeySetOptions) {
    this.#options = options;
  }

  /** The keys, or null if they were never fetched or are too old. */
  get keySet(): KeySet | null {
    return this.#fetched?.keySet ?? null;
  }

  /** Fetches the keys, unless the last attempt is within the cooldown. Never rejects. */
  async refresh(): Promise<void> {
    const { clock } = this.#options;
    if (this.#pending) return this.#pending;
    if (this.#isClosed || clock.monotonic() - this.#attemptedAtMs < KEY_SET_COOLDOWN_MS) return;
    this.#attemptedAtMs = clock.monotonic();
    this.#timer?.cancel();
    this.#pending = this.#refresh().finally(() => {
      this.#pending = null;
      if (this.#isClosed) return;
      const delayMs = this.#hasFailed ? KEY_SET_COOLDOWN_MS : KEY_SET_REFRESH_MS;
      this.#timer = clock.after(delayMs, () => void this.refresh(), { keepAlive: false });
    });
    return this.#pending;
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    this.#timer?.cancel();
  }

  async #refresh(): Promise<void> {
    const { url, clock, log, onChanged } = this.#options;
    const former = this.#fetched;
    try {
      const text = await fetchText(url, clock);
      this.#fetched = { keySet: parseKeySet(text), text, atMs: clock.monotonic() };
      if (this.#hasFailed) log("warn", `fetched the key set ${url} again`);
      this.#hasFailed = false;
    } catch (error) {
      if (former && clock.monotonic() - former.atMs >= KEY_SET_MAX_AGE_MS) this.#fetched = null;
      const consequence = this.#fetched
        ? `the former keys stay in use for ${KEY_SET_MAX_AGE_MS / 3_600_000} hours after their last fetch`
        : "the server rejects all signed tokens until a fetch succeeds";
      if (!this.#hasFailed || this.#fetched !== former)
        log("error", `cannot fetch the key set ${url}: ${errorMessage(error)}; ${consequence}`);
      this.#hasFailed = true;
    }
    if (former && this.#fetched?.text !== former.text) onChanged();
  }
}

/** Returns the body of a response with status 200. Follows no redirect, which could lead to another host. */
async function fetchText(url: string, clock: Clock): Promise<string> {
  const timeout = new AbortController();
  const expire = () => timeout.abort(new Error(`no response within ${KEY_SET_FETCH_TIMEOUT_MS / 1000} seconds`));
  const timer = clock.after(KEY_SET_FETCH_TIMEOUT_MS, expire, { keepAlive: false });
  try {
    const headers = { accept: "application/jwk-set+json, application/json" };
    const response = await fetch(url, { headers, redirect: "manual", signal: timeout.signal });
    if (response.status !== 200) {
      await response.body?.cancel();
      throw new Error(`HTTP status ${response.status}; expected 200`);
    }
    const chunks: Uint8Array[] = [];
    let length = 0;
    for await (const chunk of response.body ?? []) {
      length += chunk.length;
      if (length > MAX_KEY_SET_BYTES) throw new Error(`the response has more than ${MAX_KEY_SET_BYTES} bytes`);
      chunks.push(chunk);
    }
    return Buffer.concat(chunks).toString();
  } catch (error) {
    // The message of fetch is only `fetch failed`.
    throw error instanceof TypeError && error.cause ? error.cause : error;
  } finally {
    timer.cancel();
  }
}
