import { printableText } from "../../base/text/printable-text.ts";
import type { ExecServerClient } from "../../client/exec-server-client.ts";
import { UsageError } from "../command.ts";

/** Starts automatic forwarding if `--forward auto` is set; no other value is valid. */
export async function startAutoForward(
  client: ExecServerClient,
  value: string | undefined,
  command: string,
): Promise<AsyncDisposable> {
  if (value === undefined) return { [Symbol.asyncDispose]: async () => undefined };
  if (value !== "auto") throw new UsageError(`unsupported --forward \`${value}\`; expected auto`);
  const print = (text: string) => process.stderr.write(`procwire ${command}: ${printableText(text)}\n`);
  const { forwardPortsAutomatically } = await import("../../client/node/port-forward.ts");
  return forwardPortsAutomatically(client, {
    opened: (port) => print(`port ${port} is offered at 127.0.0.1:${port}`),
    failed: (port, message) => print(`port ${port} cannot be offered here: ${message}`),
    closed: (port) => print(`port ${port} is no longer offered`),
  });
}
