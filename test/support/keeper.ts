/** `procwire serve --keep` as a user starts it, and the programs it consists of. */

import assert from "node:assert/strict";
import type { ExecServerClient as Client } from "../../src/client/exec-server-client.ts";
import { ExecServerClient } from "../../src/client/node/socket-client.ts";
import type { StartParams } from "../../src/exec/exec-process.ts";
import { nativeFiles } from "../../src/native/native-files.ts";
import { childrenOf, PROCWIRE, ServeChild } from "./serve.ts";
import { until } from "./until.ts";

const KEEPER = nativeFiles("keeper").next().value ?? "";
const WATCHDOG = nativeFiles("watchdog").next().value ?? "";

/** Why tests of the keeper are skipped; false when they are not. */
export const NO_KEEPER: string | false = KEEPER ? false : "THE KEEPER IS NOT TESTED: it was not built";

/** Quick, so that a test of many losses is short; the whole time is what users have. */
const RECONNECT = { firstDelayMs: 5, maxDelayMs: 50 };

export class KeptServe implements AsyncDisposable {
  readonly serve: ServeChild;

  constructor(serve: ServeChild) {
    this.serve = serve;
  }

  /** A build that does not give up after five deaths, as the shipped one does. */
  static async start(...args: string[]): Promise<KeptServe> {
    return KeptServe.below(KEEPER, ...args);
  }

  /** The same with another build of the keeper. */
  static async below(keeper: string, ...args: string[]): Promise<KeptServe> {
    return KeptServe.#start(args, [WATCHDOG, "--", keeper, "--deaths", "1000", PROCWIRE, "serve"]);
  }

  static async asShipped(...args: string[]): Promise<KeptServe> {
    return KeptServe.#start(args);
  }

  static async #start(args: string[], command?: [string, ...string[]]): Promise<KeptServe> {
    const listen = args.includes("--listen") ? [] : ["--listen", "ws://127.0.0.1:0"];
    const options = command ? { command } : {};
    return new KeptServe(await new ServeChild([...listen, "--keep", ...args], options).listening());
  }

  get url(): string {
    return this.serve.url;
  }

  /** Below both watchdogs. */
  get keeperPid(): number {
    const upper = this.serve.child.pid;
    assert.ok(upper !== undefined);
    const lower = childrenOf(upper).find((pid) => childrenOf(pid).length > 0) ?? 0;
    return childrenOf(lower)[0] ?? 0;
  }

  /** The current server: the child of the keeper that is no kept process. */
  async serverPid(kept: readonly (number | null)[]): Promise<number> {
    let found: number | undefined;
    await until("the keeper to have a server", () => {
      found = childrenOf(this.keeperPid).find((pid) => !kept.includes(pid));
      return found !== undefined;
    });
    return found ?? 0;
  }

  async killServer(kept: readonly (number | null)[], signal: NodeJS.Signals = "SIGKILL"): Promise<number> {
    const pid = await this.serverPid(kept);
    process.kill(pid, signal);
    return pid;
  }

  connect(): Promise<Client> {
    return ExecServerClient.connectWebSocket({ url: this.url, reconnect: RECONNECT });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.serve[Symbol.asyncDispose]();
  }
}

export function keptParams(processId: string, script: string, more: Partial<StartParams> = {}): StartParams {
  return {
    processId,
    argv: ["/bin/sh", "-c", script],
    cwd: "/",
    env: { PATH: process.env.PATH ?? "/usr/bin:/bin" },
    tty: false,
    pipeStdin: true,
    lifetime: "kept",
    ...more,
  };
}
