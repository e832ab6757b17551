import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { skipUnless } from "../system/skip-unless.ts";
import type { DnsAnswers } from "./dns-server.ts";

const SCRIPT = fileURLToPath(new URL("test-network-services.ts", import.meta.url));

/** Why no network can be made here, or false. */
export const noTestNetwork = skipUnless(process.getuid?.() === 0, "a network namespace requires root");

export interface TestServer {
  address: string;
  port: number;
  /** Locations by path. */
  redirects?: Readonly<Record<string, string>>;
  /** Directory whose files the server sends. */
  root?: string;
  /** Accepted `Authorization` headers; other requests get status 401. Responses repeat the header. Absent: no access control. */
  authorizations?: readonly string[];
  /** Key and certificate of an HTTPS server, as PEM. */
  tls?: { key: string; cert: string };
}

/** Addresses, names and HTTP servers of a network. */
export interface TestNetworkOptions {
  names: DnsAnswers;
  servers: readonly TestServer[];
  /** Files that appear at other paths, such as `/etc/hosts`. */
  files?: Readonly<Record<string, string>>;
  /** Unix sockets of the host by the loopback port that leads to them. */
  forwards?: Readonly<Record<number, string>>;
}

/** A network namespace with public and private addresses, a DNS server and HTTP servers. Requires root. */
export class TestNetwork implements AsyncDisposable {
  readonly #child: ChildProcess;
  /** DNS queries, as `A name`. */
  readonly queries: string[] = [];
  /** Requests, as `ADDRESS:PORT METHOD PATH HOST`. */
  readonly requests: string[] = [];

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  static async open(options: TestNetworkOptions): Promise<TestNetwork> {
    const args = ["-n", "-m", "--propagation", "private", process.execPath, SCRIPT, JSON.stringify(options)];
    const child = spawn("unshare", args, { stdio: ["pipe", "pipe", "inherit"] });
    const network = new TestNetwork(child);
    const ready = Promise.withResolvers<void>();
    child.once("exit", (code) => ready.reject(new Error(`the test network exited with ${code}`)));
    createInterface({ input: child.stdout }).on("line", (line) => {
      const { query, request } = JSON.parse(line);
      if (query !== undefined) network.queries.push(query);
      else if (request !== undefined) network.requests.push(request);
      else ready.resolve();
    });
    await ready.promise;
    return network;
  }

  /** Arguments that precede a command to run it in this network. */
  get command(): string[] {
    return ["nsenter", "--target", `${this.#child.pid}`, "--net", "--mount", "--"];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode !== null) return;
    this.#child.stdin?.end();
    await once(this.#child, "exit");
  }
}
