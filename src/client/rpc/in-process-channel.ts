import { DisconnectedError } from "../../protocol/errors.ts";
import type { InProcessConnection, InProcessServer } from "../../protocol/in-process.ts";
import type { MethodName, ParamsOf, ResultOf } from "../../protocol/methods.ts";
import type { Caller, CallerEnd, CallerEvents } from "../caller.ts";

/** Calls straight into a server in the same program: typed, no JSON, no bytes copied. */
export class InProcessCaller implements Caller {
  readonly #connection: InProcessConnection;
  readonly #events: CallerEvents;
  readonly #rejects = new Set<(error: Error) => void>();
  #end: CallerEnd | null = null;

  constructor(server: InProcessServer, events: CallerEvents) {
    this.#events = events;
    this.#connection = server.connectInProcess({
      notified: (notification) => {
        if (!this.#end) events.notified(notification);
      },
      // A server that ends an in-process connection is gone; there is no other one to find.
      disconnected: (reason) => this.#finish({ reason, recoverable: false }),
    });
  }

  get end(): CallerEnd | null {
    return this.#end;
  }

  async call<M extends MethodName>(method: M, params: ParamsOf<M>): Promise<ResultOf<M>> {
    if (this.#end) throw new DisconnectedError(this.#end.reason ?? undefined);
    const lost = Promise.withResolvers<never>();
    this.#rejects.add(lost.reject);
    try {
      return await Promise.race([this.#connection.call(method, params), lost.promise]);
    } finally {
      this.#rejects.delete(lost.reject);
    }
  }

  initialized(): void {
    this.#connection.initialized();
  }

  ack(processId: string, seq: number): void {
    this.#connection.ack({ processId, seq });
  }

  forwardAck(streamId: string, bytes: number): void {
    this.#connection.forwardAck({ streamId, bytes });
  }

  ping(): null {
    return null;
  }

  /** Nothing is under way between two functions: a server in the same program holds back by acknowledgements. */
  pause(): void {}

  resume(): void {}

  close(reason?: string): void {
    if (this.#end) return;
    this.#finish({ reason: reason ?? null, recoverable: false });
    this.#connection.close();
  }

  #finish(end: CallerEnd): void {
    if (this.#end) return;
    this.#end = end;
    const error = new DisconnectedError(end.reason ?? undefined);
    for (const reject of [...this.#rejects]) reject(error);
    this.#events.closed(end);
  }
}
