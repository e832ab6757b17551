import { Channel } from "../../async/channel.ts";
import { asked } from "../../exec/call-error.ts";
import type { CallOptions } from "../../exec/exec-process.ts";
import type { ParamsOf, ServerNotification } from "../../protocol/methods.ts";
import type { Link } from "../session/reconnecting-session.ts";

/** Events of processes started by the v0 protocol. */
export type ExecServerEvent =
  | { type: "output"; sessionId: string; stream: "stdout" | "stderr"; chunk: Uint8Array }
  /** `exitCode` is -1 when the connection was lost, and the process with it. */
  | { type: "exited"; sessionId: string; exitCode: number }
  /** This receiver was too slow: `skipped` events were dropped here. */
  | { type: "lagged"; skipped: number };

/** Bytes a receiver may leave unread before the older half is dropped. */
const MAX_QUEUED_BYTES = 8 * 1024 * 1024;
/** Counted for each event besides its bytes, so that many small ones are bounded too. */
const EVENT_COST_BYTES = 128;

/**
 * The calls of the first generation: the server chooses the ids, and the processes die with their connection, so there
 * is nothing to recover.
 */
export class CommandSessions {
  readonly #link: () => Link;
  readonly #running = new Set<string>();
  readonly #receivers = new Set<Channel<ExecServerEvent>>();
  #isOver = false;
  /** Starts that are not answered yet, and which of their processes have ended before the answer was seen here. */
  #starting = 0;
  readonly #endedEarly = new Set<string>();

  constructor(link: () => Link) {
    this.#link = link;
  }

  exec(params: ParamsOf<"command/exec">, { signal }: CallOptions = {}): Promise<{ sessionId: string }> {
    return asked({ method: "command/exec", argv: params.argv }, () => this.#exec(params), signal);
  }

  write(sessionId: string, chunk: Uint8Array, { signal }: CallOptions = {}): Promise<{ accepted: boolean }> {
    const method = "command/exec/write";
    const write = () => this.#link().call(method, { sessionId, chunk }, { resend: "unsent" });
    return asked({ method }, write, signal);
  }

  terminate(sessionId: string, { signal }: CallOptions = {}): Promise<{ running: boolean }> {
    const method = "command/exec/terminate";
    const terminate = () => this.#link().call(method, { sessionId }, { resend: "unsent" });
    return asked({ method }, terminate, signal);
  }

  async #exec(params: ParamsOf<"command/exec">): Promise<{ sessionId: string }> {
    this.#starting++;
    try {
      const result = await this.#link().call("command/exec", params, { resend: "unsent" });
      if (!this.#endedEarly.delete(result.sessionId)) this.#running.add(result.sessionId);
      return result;
    } finally {
      if (--this.#starting === 0) this.#endedEarly.clear();
    }
  }

  receiver(): AsyncIterableIterator<ExecServerEvent> {
    const receiver = eventReceiver(() => this.#receivers.delete(receiver));
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
        // The end may come in the same packet as the answer to the start.
        if (!this.#running.delete(notification.params.sessionId) && this.#starting > 0)
          this.#endedEarly.add(notification.params.sessionId);
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
function eventReceiver(onReturn: () => void): Channel<ExecServerEvent> {
  return new Channel({ cost: costOf, capacity: MAX_QUEUED_BYTES, shed: dropOldest, onReturn });
}

/** Drops the older half, and puts the number of dropped events in its place. */
function dropOldest(queue: ExecServerEvent[], cost: number): number {
  let freed = 0;
  let dropped = 0;
  let skipped = 0;
  for (const event of queue) {
    if (cost - freed <= MAX_QUEUED_BYTES / 2) break;
    freed += costOf(event);
    dropped++;
    skipped += event.type === "lagged" ? event.skipped : 1;
  }
  const lagged: ExecServerEvent = { type: "lagged", skipped };
  queue.splice(0, dropped, lagged);
  return freed - costOf(lagged);
}

function costOf(event: ExecServerEvent): number {
  return EVENT_COST_BYTES + (event.type === "output" ? event.chunk.length : 0);
}
