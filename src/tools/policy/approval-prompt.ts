import { printableLine, shellQuoteAll } from "../../base/text/printable-text.ts";
import { formatTarget } from "../network/network-target.ts";
import type { ApprovalRequest, NetworkApproval } from "./approval.ts";

/**
 * Formats an approval prompt: everything that determines the command, with control characters escaped. Each line of the
 * command has a prefix, so that none can imitate a line of the prompt.
 */
export function approvalPrompt(request: ApprovalRequest): string {
  const { cmd, argv, workdir, sandbox, shell, tty } = request;
  const sandboxText = sandbox === "none" ? "without a sandbox" : `in a ${sandbox} sandbox`;
  const shellCommand = shellQuoteAll(argv.slice(0, -1));
  const lines = cmd.split("\n").map((line, index) => `  ${index === 0 ? "$" : ">"} ${printableLine(line)}`);
  return [
    request.network ? networkLine(request.network) : reasonLine(request),
    ...lines,
    `  in ${printableLine(workdir)}, ${sandboxText}`,
    `  run by ${shellCommand}${shell === "other" ? " (NOT the usual shell)" : ""}${tty ? ", on a terminal" : ""}`,
  ].join("\n");
}

/** First line of a network prompt. The following lines show the command that waits for the answer. */
function networkLine(network: NetworkApproval): string {
  const host = printableLine(network.host);
  // prose-ok: all -- Codex text
  const question = `Do you want to approve network access to "${host}"?`;
  return `${question}\n  ${formatTarget(network)} by ${PROTOCOL_NAMES[network.protocol]}; ${network.reason}`;
}

const PROTOCOL_NAMES: Record<NetworkApproval["protocol"], string> = {
  http: "HTTP",
  https_connect: "HTTPS or another protocol in a tunnel (CONNECT)",
  socks5_tcp: "TCP (SOCKS5)",
  socks5_udp: "UDP (SOCKS5)",
};

function reasonLine({ kind, justification }: ApprovalRequest): string {
  if (kind === "retry") return "The sandbox denied an operation. Run the command again without the sandbox?";
  if (justification === undefined) return "Run this command?";
  return `Run this command? The model says: ${printableLine(justification)}`;
}
