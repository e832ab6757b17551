import type { ParamsOf, ServerNotification } from "../protocol/methods.ts";
import type { Link } from "./link.ts";

/** What the first generation tells of its processes. */
export type ExecServerEvent =
  | { type: "output"; sessionId: string; stream: "stdout" | "stderr"; chunk: Uint8Array }
  /** `exitCode` is -1 when the connection was lost, and the process with it. */
  | { type: "exited"; sessionId: string; exitCode: number }
  /** This receiver was too slow: so many events are missing here. */
  | { type: "lagged"; skipped: number };

/** What a receiver may leave untaken before the oldest goes. */
const MAX_QUEUED_BYTES = 8 * 1024 * 1024;
const MAX_QUEUED_EVENTS = 50_000;

/**
 * The calls of the first generation: the server chooses the ids, and the processes die with their connection, so there
 * is nothing to recover.
 */
export class CommandSessions {
  readonly #link: () => Link;
  readonly #running = new Set<string>();
  readonly #receivers = new Set<EventReceiver>();
  #isOver = false;

  constructor(link: () => Link) {
    this.#link = link;
  }

  async exec(params: ParamsOf<"command/exec">): Promise<{ sessionId: string }> {
    const result = await this.#link().call("command/exec", params, { resend: "unsent" });
    this.#running.add(result.sessionId);
    return result;
  }

  async write(sessionId: string, chunk: Uint8Array): Promise<{ accepted: boolean }> {
    return this.#link().call("command/exec/write", { sessionId, chunk }, { resend: "unsent" });
  }

  async terminate(sessionId: string): Promise<{ running: boolean }> {
    return this.#link().call("command/exec/terminate", { sessionId }, { resend: "unsent" });
  }

  receiver(): AsyncIterableIterator<ExecServerEvent> {
    const receiver = new EventReceiver(() => this.#receivers.delete(receiver));
    if (this.#isOver) receiver.end();
    else this.#receivers.add(receiver);
    return receiver;
  }

  notified(notification: ServerNotification): void {
    switch (notification.method) {
      case "command/exec/outputDelta":
        this.#tell({ type: "output", ...notification.params });
        return;
      case "command/exec/exited":
        this.#running.delete(notification.params.sessionId);
        this.#tell({ type: "exited", ...notification.params });
        return;
      default:
        return;
    }
  }

  lost(): void {
    for (const sessionId of this.#running) this.#tell({ type: "exited", sessionId, exitCode: -1 });
    this.#running.clear();
  }

  failed(): void {
    this.lost();
    this.#isOver = true;
    for (const receiver of [...this.#receivers]) receiver.end();
  }

  #tell(event: ExecServerEvent): void {
    for (const receiver of this.#receivers) receiver.push(event);
  }
}

/** One reader's queue. It begins when it is made, not when it is first read. */
class EventReceiver implements AsyncIterableIterator<ExecServerEvent> {
  readonly #onReturn: () => void;
  #queue: ExecServerEvent[] = [];
  #queuedBytes = 0;
  #skipped = 0;
  #waiting: PromiseWithResolvers<void> | null = null;
  #isOver = false;

  constructor(onReturn: () => void) {
    this.#onReturn = onReturn;
  }

  push(event: ExecServerEvent): void {
    this.#queue.push(event);
    this.#queuedBytes += sizeOf(event);
    while (this.#queuedBytes > MAX_QUEUED_BYTES || this.#queue.length > MAX_QUEUED_EVENTS) {
      const oldest = this.#queue.shift();
      if (!oldest) break;
      this.#queuedBytes -= sizeOf(oldest);
      this.#skipped++;
    }
    this.#wake();
  }

  end(): void {
    this.#isOver = true;
    this.#wake();
  }

  async next(): Promise<IteratorResult<ExecServerEvent, undefined>> {
    for (;;) {
      if (this.#skipped > 0) {
        const skipped = this.#skipped;
        this.#skipped = 0;
        return { done: false, value: { type: "lagged", skipped } };
      }
      const event = this.#queue.shift();
      if (event) {
        this.#queuedBytes -= sizeOf(event);
        return { done: false, value: event };
      }
      if (this.#isOver) return { done: true, value: undefined };
      this.#waiting ??= Promise.withResolvers<void>();
      await this.#waiting.promise;
    }
  }

  async return(): Promise<IteratorResult<ExecServerEvent, undefined>> {
    this.#onReturn();
    this.#queue = [];
    this.end();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): AsyncIterableIterator<ExecServerEvent> {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }

  #wake(): void {
    this.#waiting?.resolve();
    this.#waiting = null;
  }
}

function sizeOf(event: ExecServerEvent): number {
  return event.type === "output" ? event.chunk.length : 0;
}
