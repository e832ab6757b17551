import type { AttachRole } from "../../client/process/attached-process.ts";
import { type Command, singleArgument } from "../command.ts";
import { requireServerUrl } from "../options/connect-options.ts";
import { defineServerCommand, openClient } from "../server-command.ts";
import { findProcess, HANDLE_HELP } from "../support/find-process.ts";
import { parseDuration } from "./logs.ts";

const HELP = `Usage: procwire share [OPTIONS] ID

Print a share link: a URL that lets a guest watch one process in a browser, and nothing else. The link expires after a time
and when the process ends. The server does not store the link. Share links require a server with --web. For other servers
and Unix sockets the command prints a share token, for \`PROCWIRE_TOKEN=TOKEN procwire attach --view ID\`.

Options:
  --drive         let the guest also send input and signals, and terminate the process
  --expires TIME  lifetime of the link: 90s, 15m, 2h; maximum 7d (default: 1h)
`;

const DEFAULT_EXPIRY = "1h";

export const command: Command = defineServerCommand({
  help: HELP,
  notes: HANDLE_HELP,
  options: { drive: { type: "boolean" }, expires: { type: "string" } },

  async run(values, positionals) {
    const id = singleArgument(positionals, "ID");
    const ttlMs = parseDuration(values.expires ?? DEFAULT_EXPIRY);
    const url = requireServerUrl(values.connect);
    await using client = await openClient(values);
    const { handle } = await findProcess(client, id);
    const role = values.drive ? "driver" : "viewer";
    const { token } = await client.share(handle, { role, ttlMs });
    process.stdout.write(`${shareUrl(url, handle, token, role) ?? token}\n`);
    return 0;
  },
});

/** Returns the share URL with the token in the fragment, which browsers do not send and servers do not log. Null if a browser
 * cannot reach the server. */
function shareUrl(url: string, handle: string, token: string, role: AttachRole): string | null {
  if (!/^wss?:/.test(url)) return null;
  // Lets the console show the role before it connects; the server enforces the role.
  const roleParameter = role === "viewer" ? "&role=viewer" : "";
  return `${new URL(url.replace(/^ws/, "http")).origin}/#share=${token}&process=${handle}${roleParameter}`;
}
