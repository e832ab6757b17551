import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect, type Socket } from "node:net";

/** How long an attack waits for a server that has stopped reading before it counts as stopped by backpressure. */
const BACKPRESSURE_TIMEOUT_MS = 3_000;

/** Size of a fragment. The Codex server rejects frames above 16 MiB. */
const FRAGMENT_BYTES = 8 * 1024 * 1024;
/** Time after which a response counts as missing. */
const RESPONSE_TIMEOUT_MS = 20_000;

const CONTINUATION = 0x0;
const TEXT = 0x1;
const PING = 0x9;

/** A raw WebSocket client: it can leave data unread, send any frame, and disconnect without a close. */
export class RawPeer {
  readonly #socket: Socket;
  readonly #responses = new ResponseIds();
  #nextId = 1;

  static async connect(url: string): Promise<RawPeer> {
    const { hostname, port } = new URL(url);
    const socket = connect(Number(port), hostname);
    socket.on("error", () => undefined);
    await once(socket, "connect");
    socket.write(
      `GET / HTTP/1.1\r\nhost: ${hostname}:${port}\r\nconnection: upgrade\r\nupgrade: websocket\r\n` +
        `sec-websocket-version: 13\r\nsec-websocket-key: ${randomBytes(16).toString("base64")}\r\n\r\n`,
    );
    await once(socket, "data");
    return new RawPeer(socket);
  }

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("data", (bytes) => this.#responses.onData(bytes));
  }

  /** Sends `initialize` and `initialized`; ignores the responses. */
  async initialize(): Promise<void> {
    await this.request("initialize", { clientName: "hostile" });
    await this.send(JSON.stringify({ method: "initialized", params: {} }));
  }

  stopReading(): void {
    this.#socket.pause();
  }

  /** Resolves to false if the server no longer reads. */
  request(method: string, params: unknown, id: string | number = this.#nextId++): Promise<boolean> {
    return this.send(JSON.stringify({ id, method, params }));
  }

  /** Sends a request and waits for its response. A server may not respond to a client that sends too many at once. */
  async call(method: string, params: unknown): Promise<boolean> {
    const id = this.#nextId++;
    return (await this.request(method, params, id)) && (await this.#responses.waitFor(id));
  }

  /** Sends a long text in fragments. */
  async send(text: string): Promise<boolean> {
    const payload = Buffer.from(text);
    for (let at = 0; at < payload.length; at += FRAGMENT_BYTES) {
      const end = at + FRAGMENT_BYTES;
      const opcode = at === 0 ? TEXT : CONTINUATION;
      if (!(await this.write(frame(opcode, payload.subarray(at, end), end >= payload.length)))) return false;
    }
    return true;
  }

  ping(payload: Buffer): Promise<boolean> {
    return this.write(frame(PING, payload));
  }

  /** Sends several frames in one write. */
  pings(payload: Buffer, count: number): Promise<boolean> {
    return this.write(Buffer.concat(Array.from({ length: count }, () => frame(PING, payload))));
  }

  async write(bytes: Buffer): Promise<boolean> {
    if (this.#socket.destroyed) return false;
    if (this.#socket.write(bytes)) return true;
    return new Promise((resolve) => {
      const finish = (drained: boolean) => {
        clearTimeout(timer);
        this.#socket.off("drain", onDrain);
        this.#socket.off("close", onClose);
        resolve(drained);
      };
      const onDrain = () => finish(true);
      const onClose = () => finish(false);
      const timer = setTimeout(onClose, BACKPRESSURE_TIMEOUT_MS);
      this.#socket.once("drain", onDrain);
      this.#socket.once("close", onClose);
    });
  }

  disconnect(): void {
    this.#socket.destroy();
  }
}

/** Finds the ids of responses in the received bytes. Output is base64 and cannot contain an id. */
class ResponseIds {
  readonly #waiting = new Map<number, () => void>();
  #rest = "";

  waitFor(id: number): Promise<boolean> {
    return new Promise((resolve) => {
      const finish = (isReceived: boolean) => {
        clearTimeout(timer);
        this.#waiting.delete(id);
        resolve(isReceived);
      };
      const timer = setTimeout(() => finish(false), RESPONSE_TIMEOUT_MS);
      this.#waiting.set(id, () => finish(true));
    });
  }

  onData(bytes: Buffer): void {
    if (this.#waiting.size === 0) return;
    const text = this.#rest + bytes.toString("latin1");
    for (const [, id] of text.matchAll(/"id":(\d+)[,}]/g)) this.#waiting.get(Number(id))?.();
    this.#rest = text.slice(-20);
  }
}

function frame(opcode: number, payload: Buffer, isLast = true): Buffer {
  const head = Buffer.alloc(payload.length < 126 ? 6 : payload.length < 65_536 ? 8 : 14);
  head[0] = (isLast ? 0x80 : 0) | opcode;
  // A mask of zero leaves the bytes unchanged.
  if (payload.length < 126) head[1] = 0x80 | payload.length;
  else if (payload.length < 65_536) {
    head[1] = 0x80 | 126;
    head.writeUInt16BE(payload.length, 2);
  } else {
    head[1] = 0x80 | 127;
    head.writeBigUInt64BE(BigInt(payload.length), 2);
  }
  return Buffer.concat([head, payload]);
}
