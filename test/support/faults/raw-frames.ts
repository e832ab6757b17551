/** WebSocket frames built and read by hand, independent of the code under test, and a raw TCP client. */

import { connect, type Socket } from "node:net";

export interface RawFrame {
  fin?: boolean;
  opcode: number;
  payload?: Uint8Array;
  /** Masking key; null for an unmasked frame. */
  mask?: number | null;
  rsv?: number;
  /** Encodes the length in this many bytes, even if fewer suffice. */
  lengthBytes?: 0 | 2 | 8;
  /** Length in the frame header, encoded in eight bytes, independent of the payload. */
  claimed?: bigint;
}

export function rawFrame(options: RawFrame): Buffer {
  const { fin = true, opcode, payload = new Uint8Array(0), mask = 0x12345678, rsv = 0, claimed } = options;
  const fewest = payload.length < 126 ? 0 : payload.length < 65_536 ? 2 : 8;
  const lengthBytes = claimed === undefined ? (options.lengthBytes ?? fewest) : 8;
  const head = Buffer.alloc(2 + lengthBytes);
  head[0] = (fin ? 0x80 : 0) | (rsv << 4) | opcode;
  head[1] = (mask === null ? 0 : 0x80) | (lengthBytes === 0 ? payload.length : lengthBytes === 2 ? 126 : 127);
  if (lengthBytes === 2) head.writeUInt16BE(payload.length, 2);
  if (lengthBytes === 8) head.writeBigUInt64BE(claimed ?? BigInt(payload.length), 2);
  if (mask === null) return Buffer.concat([head, payload]);
  const key = Buffer.alloc(4);
  key.writeUInt32BE(mask);
  const masked = Buffer.from(payload);
  for (let at = 0; at < masked.length; at++) masked[at] = (masked[at] ?? 0) ^ (key[at & 3] ?? 0);
  return Buffer.concat([head, key, masked]);
}

/** The payload of a close frame. */
export function closePayload(code: number, reason: Uint8Array | string = ""): Buffer {
  const payload = Buffer.alloc(2);
  payload.writeUInt16BE(code);
  return Buffer.concat([payload, Buffer.from(reason)]);
}

const OPCODES = new Map([
  [1, "text"],
  [2, "binary"],
  [8, "close"],
  [9, "ping"],
  [10, "pong"],
]);

/**
 * Returns a server's frames in short form: `text aGk=`, `pong `, `close 1002`. Includes bytes of an incomplete frame.
 */
export function readOutcomes(bytes: Buffer): string[] {
  const outcomes: string[] = [];
  for (let at = 0; at < bytes.length; ) {
    const short = (bytes[at + 1] ?? 0xff) & 0x7f;
    const headBytes = short === 127 ? 10 : short === 126 ? 4 : 2;
    const whole = bytes.length >= at + headBytes;
    const length =
      whole && short === 127
        ? Number(bytes.readBigUInt64BE(at + 2))
        : whole && short === 126
          ? bytes.readUInt16BE(at + 2)
          : short;
    const payload = bytes.subarray(at + headBytes, at + headBytes + length);
    const first = bytes[at] ?? 0;
    const name = OPCODES.get(first & 0x0f);
    // Servers send complete frames, unmasked and without extensions.
    if (!whole || payload.length < length || (first & 0xf0) !== 0x80 || !name || (bytes[at + 1] ?? 0) & 0x80) {
      return [...outcomes, `broken ${bytes.subarray(at, at + 20).toString("hex")}`];
    }
    outcomes.push(
      name === "close" && length >= 2 ? `close ${payload.readUInt16BE(0)}` : `${name} ${payload.toString("base64")}`,
    );
    at += headBytes + length;
  }
  return outcomes;
}

const UPGRADE =
  "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";

/** A WebSocket over TCP whose every byte the test writes itself. */
export class RawWebSocket {
  readonly socket: Socket;
  /** Resolves when the connection is closed. */
  readonly closed: Promise<void>;
  #received: Buffer[] = [];
  #onBytes: () => void = () => undefined;

  private constructor(port: number) {
    this.socket = connect({ port, host: "127.0.0.1", noDelay: true, allowHalfOpen: true });
    this.socket.on("error", () => undefined);
    this.socket.on("data", (chunk: Buffer) => {
      this.#received.push(chunk);
      this.#onBytes();
    });
    this.socket.on("end", () => this.socket.end());
    this.closed = new Promise((resolve) =>
      this.socket.on("close", () => {
        resolve();
        this.#onBytes();
      }),
    );
  }

  /** Connects and upgrades; `early` is sent together with the request. */
  static async open(port: number, early: Uint8Array = new Uint8Array(0)): Promise<RawWebSocket> {
    const made = new RawWebSocket(port);
    made.socket.write(Buffer.concat([Buffer.from(UPGRADE), early]));
    await made.#until(() => made.#all().includes("\r\n\r\n"));
    const all = made.#all();
    const end = all.indexOf("\r\n\r\n") + 4;
    const status = all.toString("latin1", 0, 12);
    if (status !== "HTTP/1.1 101") throw new Error(`upgrade rejected: ${all.toString("latin1", 0, 200)}`);
    made.#received = [all.subarray(end)];
    return made;
  }

  send(...parts: Uint8Array[]): void {
    this.socket.write(Buffer.concat(parts));
  }

  outcomes(): string[] {
    return readOutcomes(this.#all());
  }

  /** Waits until the server has sent this many frames or has disconnected. Returns the frames. */
  async heard(count: number): Promise<string[]> {
    await this.#until(() => this.outcomes().length >= count);
    return this.outcomes();
  }

  /** Half-closes the connection. Returns all bytes that the server sent before it closed. */
  async finish(): Promise<string[]> {
    this.socket.end();
    await this.closed;
    return this.outcomes();
  }

  #all(): Buffer {
    const all = Buffer.concat(this.#received);
    this.#received = [all];
    return all;
  }

  async #until(condition: () => boolean): Promise<void> {
    while (!condition() && !this.socket.destroyed) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#onBytes = resolve;
      await promise;
    }
  }
}

/** Splits bytes at the given offsets, modulo the length. Each part is a copy, as a socket delivers it. */
export function cut(bytes: Buffer, places: readonly number[]): Buffer[] {
  const sorted = [...new Set(places.map((place) => place % (bytes.length + 1)))].sort((a, b) => a - b);
  let from = 0;
  return [...sorted, bytes.length].map((place) => {
    const part = Buffer.from(bytes.subarray(from, place));
    from = place;
    return part;
  });
}
