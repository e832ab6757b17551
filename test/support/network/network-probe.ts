/** A command that tries every way out of a process, and the services of the host that it must or must not reach. */

import { createSocket, type Socket } from "node:dgram";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import { policy } from "./network-config.ts";

export type Json = Record<string, unknown>;

/** Loopback services of the host: an HTTP server, which is also a proxy, and a UDP receiver. */
export class ProbedHost implements AsyncDisposable {
  readonly #server: Server;
  readonly #udp: Socket;
  readonly port: number;
  readonly udpPort: number;
  /** Request lines of all HTTP requests. */
  readonly requests: string[];
  /** Number of received datagrams. */
  datagrams = 0;

  private constructor(server: Server, udp: Socket, requests: string[]) {
    this.#server = server;
    this.#udp = udp;
    this.requests = requests;
    const address = server.address();
    this.port = typeof address === "object" && address ? address.port : 0;
    this.udpPort = udp.address().port;
    udp.on("message", () => this.datagrams++);
  }

  static async open(): Promise<ProbedHost> {
    const requests: string[] = [];
    const server = createServer((request, response) => {
      requests.push(`${request.method} ${request.url}`);
      response.end("served\n");
    }).listen(0, "127.0.0.1");
    const udp = createSocket("udp4").bind(0, "127.0.0.1");
    await Promise.all([once(server, "listening"), once(udp, "listening")]);
    return new ProbedHost(server, udp, requests);
  }

  /** A network proxy that allows this host. The literal 127.0.0.2 is not allowed. */
  networkProxy(): Json {
    return { proxy: policy({ domains: { "127.0.0.1": "allow" } }) };
  }

  /** Prints one line per way out. `attempt` is the path of the program of the escape tests. */
  probe(attempt: string): string {
    const curl = `curl -sS -m 30 -o /dev/null -w '%{http_code}\\n'`;
    const ways: [name: string, command: string][] = [
      ["allowed", `${curl} http://127.0.0.1:${this.port}/`],
      ["socks", `${curl} -x "$ALL_PROXY" http://127.0.0.1:${this.port}/`],
      ["denied", `${curl} http://127.0.0.2:${this.port}/`],
      ["direct", `${curl} --noproxy '*' http://127.0.0.1:${this.port}/`],
      ["udp", `${attempt} datagram 127.0.0.1 ${this.udpPort}`],
      ["unix", `${attempt} socket 1`],
      ["netlink", `${attempt} socket 16 3`],
      ["packet", `${attempt} socket 17 3`],
      ["raw", `${attempt} socket 2 3`],
      ["socketpair", `${attempt} socketpair`],
      ["tcp", `${attempt} socket 2`],
      ["interfaces", `tail -n +3 /proc/net/dev | grep -vc ' lo:'`],
    ];
    const lines = ways.map(([name, command]) => `printf '${name} %s\\n' "$(${command} 2>/dev/null)"`);
    return lines.join("\n");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
    await new Promise<void>((resolve) => this.#udp.close(resolve));
  }
}

/** Parses the output of the probe. */
export function probeResults(output: string): Record<string, string> {
  return Object.fromEntries(
    output
      .trim()
      .split("\n")
      .map((line) => [line.slice(0, line.indexOf(" ")), line.slice(line.indexOf(" ") + 1)]),
  );
}

/** Results of a process that reaches only its proxy. */
export const PROXY_ONLY: Readonly<Record<string, string>> = {
  ...{ allowed: "200", socks: "200", denied: "403", direct: "000" },
  // The datagram stays on the loopback interface of the sandbox, where no process receives it.
  ...{ udp: "ok", unix: "EPERM", netlink: "EPERM", packet: "EPERM", raw: "EPERM", socketpair: "ok", tcp: "ok" },
  interfaces: "0",
};
