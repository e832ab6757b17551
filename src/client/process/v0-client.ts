import { Channel } from "../../async/channel.ts";
import { withCallErrors } from "../../exec/call-error.ts";
import type { CallOptions } from "../../exec/exec-process.ts";
import { type InputData, toInputBytes } from "../../exec/options/input-bytes.ts";
import { checkWrite } from "../../exec/options/process-checks.ts";
import type { ParamsOf, ServerNotification } from "../../protocol/methods.ts";
import { callInAnySession } from "../rpc/unsupported-method.ts";
import type { ReopeningSession } from "../session/reopening-session.ts";

/** Events of processes started by the v0 protocol. */
export type ExecServerEvent =
  | { type: "output"; sessionId: string; stream: "stdout" | "stderr"; chunk: Uint8Array }
  /** `exitCode` is -1 if the connection was lost, and the process with it. */
  | { type: "exited"; sessionId: string; exitCode: number }
  /** This receiver was too slow: `skipped` events were dropped here. */
  | { type: "lagged"; skipped: number };

/** Maximum unread bytes of a receiver; above it, the older half is dropped. */
const MAX_QUEUED_BYTES = 8 * 1024 * 1024;
/** Cost of each event in addition to its bytes, so that many small events are bounded too. */
const EVENT_COST_BYTES = 128;

/** The v0 calls: the server chooses the ids, and processes end with their connection, so nothing is recovered. */
export class V0Client {
  readonly #sessions: Pick<ReopeningSession, "current" | "run">;
  readonly #running = new Set<string>();
  readonly #receivers = new Set<Channel<ExecServerEvent>>();
  #isClosed = false;
  /** Starts without a result yet, and their processes that exited before the result arrived. */
  #starting = 0;
  readonly #exitedBeforeStart = new Set<string>();

  constructor(sessions: Pick<ReopeningSession, "current" | "run">) {
    this.#sessions = sessions;
  }

  exec(params: ParamsOf<"command/exec">, { signal }: CallOptions = {}): Promise<{ sessionId: string }> {
    return withCallErrors({ method: "command/exec", argv: params.argv }, () => this.#exec(params), signal);
  }

  write(sessionId: string, data: InputData, options: CallOptions = {}): Promise<{ accepted: boolean }> {
    const method = "command/exec/write";
    const write = () =>
      this.#sessions.current.call(method, { sessionId, chunk: toInputBytes(data) }, { resend: "unsent" });
    return withCallErrors({ method }, write, options?.signal, () => checkWrite(data, options));
  }

  terminate(sessionId: string, { signal }: CallOptions = {}): Promise<{ running: boolean }> {
    const method = "command/exec/terminate";
    const terminate = () => this.#sessions.current.call(method, { sessionId }, { resend: "unsent" });
    return withCallErrors({ method }, terminate, signal);
  }

  async #exec(params: ParamsOf<"command/exec">): Promise<{ sessionId: string }> {
    this.#starting++;
    try {
      const result = await callInAnySession(this.#sessions, "command/exec", params, { resend: "unsent" });
      if (!this.#exitedBeforeStart.delete(result.sessionId)) this.#running.add(result.sessionId);
      return result;
    } finally {
      if (--this.#starting === 0) this.#exitedBeforeStart.clear();
    }
  }

  receiver(): AsyncIterableIterator<ExecServerEvent> {
    // The queue of one reader: it collects events from now on, not from the first read.
    const receiver: Channel<ExecServerEvent> = new Channel({
      cost: eventCost,
      capacity: MAX_QUEUED_BYTES,
      onOverflow: dropOldest,
      onReturn: () => this.#receivers.delete(receiver),
    });
    if (this.#isClosed) receiver.end();
    else this.#receivers.add(receiver);
    return receiver;
  }

  onNotification(notification: ServerNotification): void {
    const { method, params } = notification;
    if (method === "command/exec/outputDelta") this.#emit({ type: "output", ...params });
    if (method !== "command/exec/exited") return;
    // The exit may arrive in the same packet as the start result.
    if (!this.#running.delete(params.sessionId) && this.#starting > 0) this.#exitedBeforeStart.add(params.sessionId);
    this.#emit({ type: "exited", ...params });
  }

  onDisconnect(): void {
    for (const sessionId of this.#running) this.#emit({ type: "exited", sessionId, exitCode: -1 });
    this.#running.clear();
  }

  /** Ends the receivers; a later receiver gets the events of the next session. */
  onLost(): void {
    this.onDisconnect();
    for (const receiver of [...this.#receivers]) receiver.end();
    this.#receivers.clear();
  }

  onEnded(): void {
    this.onLost();
    this.#isClosed = true;
  }

  #emit(event: ExecServerEvent): void {
    for (const receiver of this.#receivers) receiver.push(event);
  }
}

/** Drops the older half and inserts the number of dropped events. */
function dropOldest(queue: ExecServerEvent[], cost: number): number {
  let freed = 0;
  let dropped = 0;
  let skipped = 0;
  for (const event of queue) {
    if (cost - freed <= MAX_QUEUED_BYTES / 2) break;
    freed += eventCost(event);
    dropped++;
    skipped += event.type === "lagged" ? event.skipped : 1;
  }
  const lagged: ExecServerEvent = { type: "lagged", skipped };
  queue.splice(0, dropped, lagged);
  return freed - eventCost(lagged);
}

function eventCost(event: ExecServerEvent): number {
  return EVENT_COST_BYTES + (event.type === "output" ? event.chunk.length : 0);
}
