/** A peer that records its notifications. The test sets the state of its send queue. */

import type { ServerNotification } from "../../../src/protocol/methods.ts";
import type { Peer } from "../../../src/server/rpc/peer.ts";

export class FakePeer implements Peer {
  readonly notifications: ServerNotification[] = [];
  isAboveBulkLimit = false;
  isAboveQueueLimit = false;
  /** Reason of the close, or null while the peer is connected. */
  closeReason: string | null = null;
  /** Number of notifications that have left the queue. */
  flushed = Number.POSITIVE_INFINITY;
  readonly listeners = new Set<() => void>();
  /** Native inputs with direct input, by process id. */
  readonly routes = new Map<string, object>();
  readonly directInput = {
    route: (processId: string, input: object) => void this.routes.set(processId, input),
    unroute: (processId: string) => void this.routes.delete(processId),
    setPaused: () => undefined,
  };

  notify(notification: ServerNotification): void {
    this.notifications.push(notification);
  }

  request(): Promise<never> {
    return Promise.reject(new Error("the fake peer has no client"));
  }

  /** Method names of the notifications, without their prefix. */
  get methods(): string[] {
    return this.notifications.map(({ method }) => method.slice(method.indexOf("/") + 1));
  }

  sentPosition(): number {
    return this.notifications.length;
  }

  isFlushedThrough(position: number): boolean {
    return this.flushed >= position;
  }

  onDrain(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  drain(): void {
    this.isAboveBulkLimit = false;
    this.isAboveQueueLimit = false;
    for (const listener of [...this.listeners]) listener();
  }

  close(reason: string): void {
    this.closeReason = reason;
  }
}
