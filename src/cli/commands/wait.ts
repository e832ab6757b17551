import { errorMessage } from "../../base/error-message.ts";
import { printableText } from "../../base/text/printable-text.ts";
import type { ExecServerClient } from "../../client/exec-server-client.ts";
import { DisconnectedError } from "../../protocol/errors.ts";
import { type Command, UsageError } from "../command.ts";
import type { HelpPage } from "../help/help-page.ts";
import { parsePositive } from "../options/parse-number.ts";
import { defineServerCommand, openClient } from "../server-command.ts";
import { selectProcess } from "../support/find-process.ts";

const HELP: HelpPage = {
  usage: ["[OPTIONS] ID..."],
  details: `Waits until the processes exit, also across lost connections and, for persistent processes, restarts of the
    server. With one ID, exits with the exit code of the process. With several, prints ID and exit code of each process when
    it exits, and exits with the first exit code other than 0, in the order of the IDs.`,
  options: { Waiting: [["--timeout SECONDS", "stop waiting after SECONDS (exit code 124)"]] },
  examples: [
    ["procwire wait api", "wait for a process and exit with its exit code"],
    ["procwire wait --timeout 600 unit-tests lint", "wait for two processes, at most ten minutes"],
    ["procwire wait --connect ssh://build-host k3v7 m2x8", "print the exit codes of two processes on another host"],
  ],
  exitCodes: "the exit code of a process; 124 timeout, 125 unknown ID or no server",
};

const ExitCode = { timedOut: 124, failed: 125 } as const;

export const command: Command = defineServerCommand("wait", HELP, {
  ids: { includesExited: true, isRepeatable: true },
  options: { timeout: { type: "string" } },

  async run(values, positionals) {
    if (positionals.length === 0) throw new UsageError("give at least one ID");
    const timeoutSeconds = parsePositive("timeout", values.timeout);
    const deadlineMs = timeoutSeconds === undefined ? null : performance.now() + timeoutSeconds * 1000;
    const report = (error: unknown) => {
      process.stderr.write(`procwire wait: ${printableText(errorMessage(error))}\n`);
      return ExitCode.failed;
    };
    try {
      await using server = new ReopenedClient(() => openClient(values));
      const listed = await (await server.client).list({ allSessions: true });
      const found = positionals.map((id) => ({ id, handle: selectProcess(listed, id).handle }));
      const codes = await Promise.all(
        found.map(async ({ id, handle }) => {
          const code = await waitForExit(server, handle, deadlineMs).catch(report);
          if (code === "timeout") {
            process.stderr.write(`procwire wait: ${id} still runs after ${timeoutSeconds} s\n`);
            return ExitCode.timedOut;
          }
          if (found.length > 1) process.stdout.write(`${id} ${code}\n`);
          return code;
        }),
      );
      return codes.find((code) => code !== 0) ?? 0;
    } catch (error) {
      return report(error);
    }
  },
});

/** A client that is opened again after its session was lost, for example because a new server replaced the old one. */
class ReopenedClient implements AsyncDisposable {
  readonly #open: () => Promise<ExecServerClient>;
  #client: Promise<ExecServerClient>;

  constructor(open: () => Promise<ExecServerClient>) {
    this.#open = open;
    this.#client = open();
  }

  get client(): Promise<ExecServerClient> {
    return this.#client;
  }

  /** Replaces a lost client, once for all of its callers. */
  replace(lost: Promise<ExecServerClient>): void {
    if (this.#client !== lost) return;
    void lost.then((client) => client.close()).catch(() => undefined);
    this.#client = this.#open();
    // The next call reports the error.
    this.#client.catch(() => undefined);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const client = await this.#client.catch(() => null);
    await client?.close();
  }
}

/** Resolves with the exit code of a process. Rejects if the server no longer knows the process. */
async function waitForExit(
  server: ReopenedClient,
  handle: string,
  deadlineMs: number | null,
): Promise<number | "timeout"> {
  for (;;) {
    const opened = server.client;
    const client = await opened;
    const timeoutMs = deadlineMs === null ? undefined : Math.max(0, Math.ceil(deadlineMs - performance.now()));
    try {
      // No event has this sequence number: the wait needs no output.
      await client.call("process/attach", { handle, role: "viewer", afterSeq: Number.MAX_SAFE_INTEGER });
      const { reason, exitCode } = await client.call("process/wait", { processId: handle, timeoutMs });
      if (reason === "timeout") return "timeout";
      if (exitCode === null) throw new Error(`process ${handle} ended without an exit code`);
      return exitCode & 0xff;
    } catch (error) {
      if (!(error instanceof DisconnectedError)) throw error;
      server.replace(opened);
    }
  }
}
