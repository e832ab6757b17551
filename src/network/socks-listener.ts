import type { Socket } from "node:net";
import { getErrorCode } from "../base/error-code.ts";
import { parseGreeting, parseRequest, SocksReply, type SocksReplyCode, socksReply } from "../forward/socks5.ts";
import type { TlsTerminator } from "./credentials/tls-terminator.ts";
import type { HeadDeadlines } from "./head-deadlines.ts";
import type { Outgoing } from "./outgoing.ts";
import { OwnListenerError } from "./outgoing.ts";
import type { ProxiedRequest, RequestJudge } from "./request-judge.ts";
import { joinSockets } from "./tunnel.ts";

export interface SocksListenerDeps {
  judge: RequestJudge;
  outgoing: Outgoing;
  deadlines: HeadDeadlines;
  /** Null for a process without credentials. */
  terminator: TlsTerminator | null;
}

/** The SOCKS5 side of a network proxy: CONNECT by name or address. */
export class SocksListener {
  readonly #deps: SocksListenerDeps;

  constructor(deps: SocksListenerDeps) {
    this.#deps = deps;
  }

  /** Serves an accepted connection. */
  accept(socket: Socket): void {
    const { deadlines } = this.#deps;
    deadlines.start(socket);
    let pending: Buffer = Buffer.alloc(0);
    let parse = parseGreeting;
    const onData = (chunk: Buffer) => {
      pending = pending.length === 0 ? chunk : Buffer.concat([pending, chunk]);
      for (;;) {
        const step = parse(pending);
        if (step.type === "incomplete") return;
        if (step.type === "rejected") {
          socket.removeListener("data", onData);
          deadlines.complete(socket);
          if (step.reply.length > 0) socket.end(step.reply);
          else socket.resetAndDestroy();
          return;
        }
        pending = pending.subarray(step.consumed);
        if (step.type === "connect") {
          socket.removeListener("data", onData);
          deadlines.complete(socket);
          socket.pause();
          if (pending.length > 0) socket.unshift(pending);
          void this.#connect(socket, step).catch(() => socket.destroy());
          return;
        }
        socket.write(step.reply);
        parse = parseRequest;
      }
    };
    socket.on("data", onData);
    // The stream ends before the request is complete.
    socket.once("end", () => {
      if (socket.listeners("data").includes(onData)) socket.destroy();
    });
  }

  async #connect(socket: Socket, { host, port }: { host: string; port: number }): Promise<void> {
    const { judge, outgoing, terminator } = this.#deps;
    const ended = new AbortController();
    socket.once("close", () => ended.abort());
    const { remoteAddress = "127.0.0.1", remotePort = 0 } = socket;
    const request: ProxiedRequest = { protocol: "socks5_tcp", host, port, client: `${remoteAddress}:${remotePort}` };
    const judged = await judge.judge(request, ended.signal);
    if (!judged.isAllowed) {
      socket.end(socksReply(SocksReply.notAllowed));
      return;
    }
    if (terminator?.covers(judged.host)) {
      socket.write(socksReply(SocksReply.succeeded));
      await terminator.serve(socket, judged, ended.signal);
      return;
    }
    let target: Socket;
    try {
      target = await outgoing.connect(judged, ended.signal);
    } catch (error) {
      socket.end(socksReply(replyCodeFor(error)));
      return;
    }
    socket.write(socksReply(SocksReply.succeeded, target));
    joinSockets(socket, target);
  }
}

function replyCodeFor(error: unknown): SocksReplyCode {
  if (error instanceof OwnListenerError) return SocksReply.notAllowed;
  const code = getErrorCode(error);
  if (code === "ECONNREFUSED") return SocksReply.refused;
  if (code === "ENETUNREACH") return SocksReply.networkUnreachable;
  if (code === "EHOSTUNREACH" || code === "ETIMEDOUT") return SocksReply.hostUnreachable;
  return SocksReply.failed;
}
