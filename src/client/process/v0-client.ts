import { Broadcast } from "../../async/channel.ts";
import { startDetails, withCallErrors } from "../../exec/call-error.ts";
import type { CallOptions } from "../../exec/exec-process.ts";
import { checkInputData, type InputData, toInputBytes } from "../../exec/options/input-bytes.ts";
import { checkOptions } from "../../exec/options/option-schema.ts";
import { checkCall } from "../../exec/options/process-checks.ts";
import type { ParamsOf, ServerNotification } from "../../protocol/methods.ts";
import { v0StartParams } from "../client-options.ts";
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
  readonly #events = new Broadcast({ cost: eventCost, capacity: MAX_QUEUED_BYTES, onOverflow: dropOldest });
  /** Starts without a result yet, and their processes that exited before the result arrived. */
  #starting = 0;
  readonly #exitedBeforeStart = new Set<string>();

  constructor(sessions: Pick<ReopeningSession, "current" | "run">) {
    this.#sessions = sessions;
  }

  exec(params: ParamsOf<"command/exec">, options: CallOptions = {}): Promise<{ sessionId: string }> {
    const details = { ...startDetails(params), method: "command/exec" };
    return withCallErrors(
      details,
      () => this.#exec(params),
      options?.signal,
      () => {
        checkOptions("exec", params, v0StartParams, "params");
        checkCall("exec", options);
      },
    );
  }

  write(sessionId: string, data: InputData, options: CallOptions = {}): Promise<{ accepted: boolean }> {
    const method = "command/exec/write";
    const write = () =>
      this.#sessions.current.call(method, { sessionId, chunk: toInputBytes(data) }, { resend: "unsent" });
    return withCallErrors({ method }, write, options?.signal, () => {
      checkCall("write", options, { sessionId });
      checkInputData("write", "data", data);
    });
  }

  terminate(sessionId: string, options: CallOptions = {}): Promise<{ running: boolean }> {
    const method = "command/exec/terminate";
    const terminate = () => this.#sessions.current.call(method, { sessionId }, { resend: "unsent" });
    const check = () => checkCall("terminate", options, { sessionId });
    return withCallErrors({ method }, terminate, options?.signal, check);
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
    return this.#events.subscribe();
  }

  onNotification(notification: ServerNotification): void {
    const { method, params } = notification;
    if (method === "command/exec/outputDelta") this.#events.emit({ type: "output", ...params });
    if (method !== "command/exec/exited") return;
    // The exit may arrive in the same packet as the start result.
    if (!this.#running.delete(params.sessionId) && this.#starting > 0) this.#exitedBeforeStart.add(params.sessionId);
    this.#events.emit({ type: "exited", ...params });
  }

  onDisconnect(): void {
    for (const sessionId of this.#running) this.#events.emit({ type: "exited", sessionId, exitCode: -1 });
    this.#running.clear();
  }

  /** Ends the receivers; a later receiver gets the events of the next session. */
  onLost(): void {
    this.onDisconnect();
    this.#events.endSubscribers();
  }

  onEnded(): void {
    this.onDisconnect();
    this.#events.close();
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
