import type { IncomingHttpHeaders } from "node:http";
import { PassThrough, Transform } from "node:stream";
import { createBrotliDecompress, createGunzip, createInflate } from "node:zlib";
import { type Replacement, replaceTexts, SecretReplacer } from "./secret-replacer.ts";

/** A secret and its placeholder. */
export interface OpenSecret {
  /** Lower-case name of the header that contains the placeholder. */
  header: string;
  placeholder: string;
  secret: string;
}

/** Headers whose value depends on the body before the proxy replaces secrets in it. */
const BODY_HEADERS = new Set(["content-length", "content-encoding", "content-md5", "digest", "content-digest"]);

/** The secrets of one connection: puts them into requests, and removes them from responses. */
export class RequestSecrets {
  readonly #secrets: readonly OpenSecret[];
  readonly #masks: Replacement[];

  constructor(secrets: readonly OpenSecret[]) {
    this.#secrets = secrets;
    this.#masks = secrets.flatMap(({ secret, placeholder }) =>
      writtenForms(secret).map((from) => ({ from, to: placeholder })),
    );
  }

  /** Returns raw headers of a request with the secrets in place of their placeholders. Asks for a plain body. */
  putInto(rawHeaders: readonly string[]): string[] {
    const headers = ["Accept-Encoding", "identity"];
    for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
      const name = rawHeaders[at] ?? "";
      if (/^accept-encoding$/i.test(name)) continue;
      headers.push(name, this.#putIntoValue(name.toLowerCase(), rawHeaders[at + 1] ?? ""));
    }
    return headers;
  }

  #putIntoValue(name: string, value: string): string {
    const inserts = this.#secrets
      .filter(({ header }) => header === name)
      .map(({ placeholder, secret }) => ({ from: placeholder, to: secret }));
    if (inserts.length === 0) return value;
    const [, scheme, encoded = ""] = (name === "authorization" && /^(Basic +)([\w+/=-]+) *$/i.exec(value)) || [];
    if (scheme === undefined) return replaceTexts(value, inserts);
    const decoded = Buffer.from(encoded, "base64").toString("latin1");
    const changed = replaceTexts(decoded, inserts);
    if (changed === decoded) return value;
    const sent = Buffer.from(changed, "latin1").toString("base64");
    // A server may return the header as it received it.
    if (!this.#masks.some(({ from }) => from === sent)) this.#masks.push({ from: sent, to: encoded });
    return `${scheme}${sent}`;
  }

  /** Returns a text of a response, such as a header, with the placeholders in place of the secrets. */
  mask(text: string): string {
    return replaceTexts(text, this.#masks);
  }

  /** Returns raw headers of a response without secrets. `hasBody`: the proxy streams the body through `maskBody`. */
  maskHeaders(rawHeaders: readonly string[], { hasBody }: { hasBody: boolean }): string[] {
    const headers: string[] = [];
    for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
      const name = rawHeaders[at] ?? "";
      if (hasBody && BODY_HEADERS.has(name.toLowerCase())) continue;
      headers.push(this.mask(name), this.mask(rawHeaders[at + 1] ?? ""));
    }
    return headers;
  }

  /**
   * Returns the streams that a response body passes in order: decoders if the server ignores the request for a plain body,
   * then the removal of secrets. Returns null for an unknown encoding, which could hide a secret.
   */
  maskBody({ "content-encoding": encodings = "" }: IncomingHttpHeaders): Transform[] | null {
    const decoders = encodings.split(",").flatMap((name) => decoderFor(name.trim().toLowerCase()) ?? [null]);
    if (decoders.includes(null)) return null;
    return [...decoders.filter((decoder) => decoder !== null).reverse(), this.#masker()];
  }

  #masker(): Transform {
    const replacer = new SecretReplacer(this.#masks);
    return new Transform({
      transform: (chunk: Buffer, _encoding, done) => done(null, replacer.push(chunk)),
      flush: (done) => done(null, replacer.end()),
    });
  }
}

/** Returns undefined for an unknown encoding. */
function decoderFor(encoding: string): Transform | undefined {
  switch (encoding) {
    case "":
    case "identity":
      return new PassThrough();
    case "gzip":
    case "x-gzip":
      return createGunzip();
    case "deflate":
      return createInflate();
    case "br":
      return createBrotliDecompress();
    default:
      return undefined;
  }
}

/** A server may return a secret as it is, in a URL, or in a JSON string. */
function writtenForms(secret: string): string[] {
  const json = JSON.stringify(secret).slice(1, -1);
  return [...new Set([secret, encodeURIComponent(secret), json, json.replaceAll("/", "\\/")])];
}
