import { printableText } from "../../base/printable-text.ts";
import type { ExecServerClient } from "../../client/exec-server-client.ts";
import { UsageError } from "../command.ts";

/** Starts automatic forwarding if `--forward auto` is set; no other value is valid. */
export async function startAutoForward(
  client: ExecServerClient,
  value: string | undefined,
  speaker: string,
): Promise<AsyncDisposable> {
  if (value === undefined) return { [Symbol.asyncDispose]: async () => undefined };
  if (value !== "auto") throw new UsageError(`unsupported --forward \`${value}\`; expected auto`);
  const say = (text: string) => process.stderr.write(`procwire ${speaker}: ${printableText(text)}\n`);
  const { forwardPortsAutomatically } = await import("../../client/node/port-forward.ts");
  return forwardPortsAutomatically(client, {
    opened: (port) => say(`port ${port} is offered at 127.0.0.1:${port}`),
    failed: (port, message) => say(`port ${port} cannot be offered here: ${message}`),
    closed: (port) => say(`port ${port} is no longer offered`),
  });
}
