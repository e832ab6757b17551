import { DisconnectedError } from "../../protocol/errors.ts";
import type { InProcessConnection, InProcessServer } from "../../protocol/in-process.ts";
import type { MethodName, ParamsOf, ResultOf } from "../../protocol/methods.ts";
import type { ChannelClose, RpcChannel, RpcChannelEvents } from "./rpc-channel.ts";

/** Calls a server in the same process: typed, without JSON and without copying bytes. */
export class InProcessChannel implements RpcChannel {
  readonly #connection: InProcessConnection;
  readonly #events: RpcChannelEvents;
  readonly #rejects = new Set<(error: Error) => void>();
  closeInfo: ChannelClose | null = null;

  constructor(server: InProcessServer, events: RpcChannelEvents) {
    this.#events = events;
    this.#connection = server.connectInProcess({
      onNotification: (notification) => {
        if (!this.closeInfo) events.onNotification(notification);
      },
      onRequest: events.onRequest,
      // The server ends an in-process connection only when it closes, so there is no server to reconnect to.
      onDisconnect: (reason) => this.#finish({ reason, recoverable: false }),
    });
  }

  async call<M extends MethodName>(method: M, params: ParamsOf<M>): Promise<ResultOf<M>> {
    if (this.closeInfo) throw new DisconnectedError(this.closeInfo.reason ?? undefined);
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

  /** No-op: an in-process server pauses by acknowledgements. */
  pause(): void {}

  resume(): void {}

  close(reason?: string): void {
    if (this.closeInfo) return;
    this.#finish({ reason: reason ?? null, recoverable: false });
    this.#connection.close();
  }

  #finish(end: ChannelClose): void {
    if (this.closeInfo) return;
    this.closeInfo = end;
    const error = new DisconnectedError(end.reason ?? undefined);
    for (const reject of [...this.#rejects]) reject(error);
    this.#events.onClosed(end);
  }
}
