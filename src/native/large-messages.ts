import { waitForTick } from "../async/slices.ts";
import { InvalidBase64 } from "../protocol/base64.ts";
import { type ParsedMessage, toMessage } from "../protocol/envelope.ts";
import { MAX_JSON_DEPTH, MAX_JSON_VALUES, type ParsedJson } from "../protocol/json-text.ts";
import type { NativeAddon, NativeScanResult } from "./addon.ts";

/** Maximum tokens per slice: about a millisecond. */
const SLICE_TOKENS = 4_096;
/** Maximum bytes of strings per slice. */
const SLICE_STRING_BYTES = 1024 * 1024;

/** Bytes that are released at once. Takes about two milliseconds. */
const RELEASE_BYTES = 8 * 1024 * 1024;

/** Returns to the event loop between two slices. */
type Yield = () => Promise<void>;

/**
 * Parses a message of any size: a thread of the addon finds the tokens, and this one creates their values in slices.
 * Resolves to null if the message is not UTF-8. Byte fields of the result share the memory of `message`.
 */
export async function parseLargeMessage(native: NativeAddon, message: Uint8Array): Promise<ParsedMessage | null> {
  const parsed = await parseLargeJson(native, message);
  return parsed && toMessage(parsed);
}

export async function parseLargeJson(
  native: NativeAddon,
  message: Uint8Array,
  yieldToLoop = waitForTick,
): Promise<ParsedJson | null> {
  const scanned = await new Promise<NativeScanResult>((resolve) =>
    native.scanMessage(message, MAX_JSON_VALUES, MAX_JSON_DEPTH, resolve),
  );
  const builder = new ValueBuilder(kindsOf(native), message, scanned, yieldToLoop);
  const { isUtf8, problem } = scanned;
  const parsed = problem === null ? (isUtf8 ? await builder.build() : null) : ({ ok: false, problem } as const);
  if (!builder.sharesMemory) void releaseMemory(native, message);
  return isUtf8 ? parsed : null;
}

/** Returns the memory of a message to the system, in parts, because all at once takes long. */
async function releaseMemory(native: NativeAddon, message: Uint8Array): Promise<void> {
  for (let at = 0; at < message.length; at += RELEASE_BYTES) {
    native.releasePages(message.subarray(at, at + RELEASE_BYTES));
    await waitForTick();
  }
}

type Kinds = Record<string, number>;
let kinds: Kinds | null = null;

function kindsOf(native: NativeAddon): Kinds {
  kinds ??= Object.fromEntries(native.tokenKinds.map((name, index) => [name, index]));
  return kinds;
}

type Container = unknown[] | Record<string, unknown>;

/** Builds the value of a message from its tokens. */
class ValueBuilder {
  readonly #kinds: Kinds;
  readonly #bytes: Buffer;
  readonly #scanned: NativeScanResult;
  readonly #yieldToLoop: Yield;
  readonly #stack: Container[] = [];
  #root: unknown;
  #key = "";
  #idLiteral: string | null = null;
  /** Whether a value refers to the memory of the message. */
  sharesMemory = false;

  constructor(kinds: Kinds, message: Uint8Array, scanned: NativeScanResult, yieldToLoop: Yield) {
    this.#kinds = kinds;
    this.#bytes = Buffer.from(message.buffer, message.byteOffset, message.byteLength);
    this.#scanned = scanned;
    this.#yieldToLoop = yieldToLoop;
  }

  async build(): Promise<ParsedJson> {
    const { tokens } = this.#scanned;
    let sliceTokens = 0;
    let sliceBytes = 0;
    for (let at = 0; at < tokens.length; at += 3) {
      const [kind, start, end] = [tokens[at] ?? 0, tokens[at + 1] ?? 0, tokens[at + 2] ?? 0];
      if (end - start > SLICE_STRING_BYTES && this.#isText(kind)) this.#add(await this.#longText(start, end));
      else this.#take(kind, start, end);
      sliceBytes += end - start;
      if (++sliceTokens < SLICE_TOKENS && sliceBytes < SLICE_STRING_BYTES) continue;
      sliceTokens = sliceBytes = 0;
      await this.#yieldToLoop();
    }
    return { ok: true, value: this.#root, idLiteral: this.#idLiteral };
  }

  #isText(kind: number): boolean {
    return kind === this.#kinds.ascii || kind === this.#kinds.utf8;
  }

  #take(kind: number, start: number, end: number): void {
    const of = this.#kinds;
    switch (kind) {
      case of.asciiKey:
        this.#key = this.#bytes.toString("latin1", start, end);
        return;
      case of.utf8Key:
        this.#key = this.#bytes.toString("utf8", start, end);
        return;
      case of.rawKey:
        this.#key = JSON.parse(this.#bytes.toString("utf8", start, end));
        return;
      case of.object:
        this.#open({});
        return;
      case of.array:
        this.#open([]);
        return;
      case of.objectEnd:
      case of.arrayEnd:
        this.#stack.pop();
        return;
      case of.number:
        this.#addNumber(this.#bytes.toString("latin1", start, end));
        return;
      default:
        this.#add(this.#scalar(kind, start, end));
    }
  }

  #scalar(kind: number, start: number, end: number): unknown {
    const of = this.#kinds;
    switch (kind) {
      case of.ascii:
        return this.#bytes.toString("latin1", start, end);
      case of.utf8:
        return this.#bytes.toString("utf8", start, end);
      case of.raw:
        return JSON.parse(this.#bytes.toString("utf8", start, end));
      case of.true:
        return true;
      case of.false:
        return false;
      case of.null:
        return null;
      case of.bytes:
        this.sharesMemory = true;
        return this.#bytes.subarray(start, end);
      default:
        return new InvalidBase64(this.#scanned.texts[start] ?? "");
    }
  }

  /** Concatenates parts. V8 copies them only if a part of the program needs the characters in sequence. */
  async #longText(start: number, end: number): Promise<string> {
    let text = "";
    for (let at = start; at < end; ) {
      let partEnd = Math.min(end, at + SLICE_STRING_BYTES);
      // No part begins within a character.
      while (partEnd < end && ((this.#bytes[partEnd] ?? 0) & 0xc0) === 0x80) partEnd++;
      text += this.#bytes.toString("utf8", at, partEnd);
      at = partEnd;
      await this.#yieldToLoop();
    }
    return text;
  }

  #addNumber(literal: string): void {
    const isId = this.#stack.length === 1 && this.#key === "id" && !Array.isArray(this.#stack[0]);
    if (isId) this.#idLiteral = literal;
    this.#add(Number(literal));
  }

  #open(container: Container): void {
    this.#add(container);
    this.#stack.push(container);
  }

  #add(value: unknown): void {
    const top = this.#stack.at(-1);
    if (top === undefined) this.#root = value;
    else if (Array.isArray(top)) top.push(value);
    else if (this.#key === "__proto__") Object.defineProperty(top, this.#key, { value, ...ORDINARY });
    else top[this.#key] = value;
  }
}

/** Attributes of a property that an assignment creates; `__proto__` cannot be assigned. */
const ORDINARY = { writable: true, enumerable: true, configurable: true };
